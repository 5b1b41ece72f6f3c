"""The HTML report: page on entries; evidence in words, pictures and cross-sections of weight
space."""

from bnncert.report.page import write_report

__all__ = ["write_report"]
