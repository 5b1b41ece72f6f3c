"""The HTML report: a page of entries.

Entries show evidence in words, pictures and cross-sections of weight space.
"""

from bnncert.report.page import write_report

__all__ = ["write_report"]
