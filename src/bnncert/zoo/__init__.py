"""The zoo: trained posteriors, and how they were made."""
