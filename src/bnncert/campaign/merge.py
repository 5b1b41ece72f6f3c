"""Merge: the run folders of shards as one; results that contradict each other are an error."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from pathlib import Path

from bnncert.campaign.bundle import BUNDLES
from bnncert.campaign.store import Store, open_store
from bnncert.errors import InputError
from bnncert.results.manifest import read_manifest, write_manifest


def merge(target: Path, folders: Iterable[Path]) -> int:
    """Enter every result of the folders into the target, bundle by bundle; how many there were."""
    folders = list(folders)
    with open_store(folders[0]) as first:
        campaign = first.about("campaign")
    count = 0
    with open_store(target, create=True) as store:
        _same_campaign(store.about("campaign") or campaign, campaign, folders[0], target)
        for folder in folders:
            with open_store(folder) as part:
                _same_campaign(campaign, part.about("campaign"), folder, folders[0])
                count += _enter(store, part)
                store.adopt(part)
    if (manifest := read_manifest(folders[0])) is not None:
        write_manifest(target, manifest)
    return count


def _same_campaign(campaign: str, other: str, folder: Path, reference: Path) -> None:
    if campaign != other:
        raise InputError(
            f"{str(folder)!r} is a run of another campaign than {str(reference)!r}; "
            "merge shards of one campaign"
        )


def _enter(store: Store, part: Store) -> int:
    count = 0
    for bundle, group in groupby(part.rows(), key=lambda row: row["bundle"]):
        rows = list(group)
        content = b""
        if bundle is not None:
            path = part.folder / BUNDLES / bundle
            try:
                content = path.read_bytes()
            except OSError as error:
                raise InputError(
                    f"bundle {str(path)!r} cannot be read ({error.strerror}); put it back"
                ) from error
        store.add(rows, bundle or "", content)
        count += len(rows)
    return count
