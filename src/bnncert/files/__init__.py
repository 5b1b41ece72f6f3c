"""Files: tensors on disk and their digests."""
