"""Certificates and files that were once taken wrongly, each as it was found."""
