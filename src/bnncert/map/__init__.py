"""Maps of operating regions: a box in input space, cut into cells until each is decided.

    condition, cells -> proving -> tree, kept in a store -> folder -> pictures, page

Nothing is imported here, so that the command line can describe itself without loading torch.
"""
