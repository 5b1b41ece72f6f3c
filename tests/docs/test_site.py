"""The documentation site: its contents are complete, its links lead somewhere, and it needs nothing
from elsewhere."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import unicodedata
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType

import pytest
import typer

import bnncert
from bnncert.cli.main import app
from pages import DOCS, ROOT, fenced, text

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
PAGES = sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))
FENCE = re.compile(r"^```.*?^```$", re.M | re.S)
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
ELSEWHERE = re.compile(r"(https?:)?//")
FETCHED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "object": "data"}
KINDS = {
    "stylesheet",
    "preload",
    "preconnect",
    "modulepreload",
    "icon",
}  # of <link>: what a browser fetches unasked


def test_the_contents_list_every_page_once() -> None:
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    listed = Counter(re.findall(r"[\w./-]+\.md\b", nav))
    assert listed == Counter(PAGES), "docs/ and the nav of mkdocs.yml differ"


def anchors(markdown: str) -> set[str]:
    """Of the headings, as the site and GitHub make them where both agree: lower case, words joined
    by hyphens."""
    found = set()
    for heading in re.findall(r"^#+ (.*)$", FENCE.sub("", markdown), re.M):
        plain = unicodedata.normalize("NFKD", heading).encode("ascii", "ignore").decode()
        found.add(re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", plain).strip().lower()))
    return found


@pytest.mark.parametrize("page", ["README.md", *(f"docs/{page}" for page in PAGES)])
def test_links_lead_somewhere(page: str) -> None:
    path = ROOT / page
    for link in LINK.findall(FENCE.sub("", path.read_text(encoding="utf-8"))):
        if ELSEWHERE.match(link):
            continue
        target, _, anchor = link.partition("#")
        file = (path.parent / target).resolve() if target else path
        assert file.is_file(), f"{page}: {link}"
        assert page == "README.md" or file.is_relative_to(DOCS), (
            f"{page}: {link} is not part of the site"
        )
        if anchor:
            assert anchor in anchors(file.read_text(encoding="utf-8")), f"{page}: {link}"


def test_every_page_with_code_is_run_by_a_test() -> None:
    tests = "".join(
        path.read_text(encoding="utf-8")
        for path in Path(__file__).parents[1].rglob("test_*.py")
        if path != Path(__file__)
    )
    with_code = [
        page for page in PAGES if any(language == "python" for language, _ in fenced(text(page)))
    ]
    assert with_code
    assert [
        page for page in with_code if f'"{page}"' not in tests and f'"docs/{page}"' not in tests
    ] == []


def public_names() -> set[str]:
    """Names of the package and, with the namespace's name, of its namespaces; what both have is the
    package's."""
    spaces = {name for name in bnncert.__all__ if isinstance(getattr(bnncert, name), ModuleType)}
    own = set(bnncert.__all__) - spaces - {"__version__"}
    inside = {
        f"{space}.{name}"
        for space in spaces
        for name in getattr(bnncert, space).__all__
        if name not in own
    }
    return own | inside


def test_the_reference_holds_every_public_name_once() -> None:
    documented = Counter(re.findall(r"^::: bnncert\.([\w.]+)$", text("api.md"), re.M))
    assert documented == Counter(public_names())


def commands(group: object, path: str = "") -> list[str]:
    """The commands of the program, those of groups with the group's name."""
    inside = getattr(group, "commands", None)
    if inside is None:
        return [path]
    return [
        name for word, command in inside.items() for name in commands(command, f"{path}{word} ")
    ]


def test_the_reference_asks_every_command_for_help() -> None:
    asked = re.findall(r"^\$ bnncert (.*)--help$", text("cli.md"), re.M)
    assert Counter(asked) == Counter(commands(typer.main.get_command(app)))


def test_help_on_the_site_is_the_programs() -> None:
    spec = importlib.util.spec_from_file_location("commands", DOCS / "commands.py")
    assert spec is not None
    assert spec.loader is not None
    hook = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hook)
    page = hook.on_page_markdown("```console\n$ bnncert certify --help\n```\n\n$ nothing --help\n")
    assert "Usage: bnncert certify" in page
    assert "--at-least" in page
    assert page.endswith("\n```\n\n$ nothing --help\n")
    with pytest.raises(RuntimeError, match="nonsense"):
        hook.answer("nonsense --help")


def rows(page: str) -> dict[str, list[str]]:
    """First and further cells of the tables' rows, without emphasis."""
    lines = re.findall(r"^\| (.+) \|$", text(page).replace("**", ""), re.M)
    return {cells[0]: cells[1:] for cells in (line.split(" | ") for line in lines)}


def test_numbers_are_those_of_the_reproduction() -> None:
    quoted, measured = rows("methods.md"), rows("reproduction.md")
    numeric = {
        name
        for name, cells in quoted.items()
        if all(re.fullmatch(r"[\d.]+", cell) for cell in cells)
    }
    assert len(numeric) == 7
    assert {name: quoted[name] for name in numeric} == {name: measured[name] for name in numeric}


class Resources(HTMLParser):
    """What a page makes a browser fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attributes}
        if tag == "link" and KINDS & set(given.get("rel", "").split()):
            self.found.append(given["href"])
        if FETCHED.get(tag) in given:
            self.found.append(given[FETCHED[tag]])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pages, built."""
    pytest.importorskip("mkdocs")
    folder = tmp_path_factory.mktemp("docs") / "site"
    paths = [str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return folder


def test_the_site_needs_nothing_from_elsewhere(site: Path) -> None:
    built = {path.relative_to(site).as_posix() for path in site.rglob("*.html")}
    assert built == {page.replace(".md", ".html") for page in PAGES} | {"404.html"}
    for name in built:
        page = (site / name).read_text(encoding="utf-8")
        parser = Resources()
        parser.feed(page)
        assert parser.found, name
        assert [link for link in parser.found if ELSEWHERE.match(link)] == [], name
    reference = (site / "api.html").read_text(encoding="utf-8")
    assert all(f'id="bnncert.{name}"' in reference for name in public_names())
    for style in site.rglob("*.css"):
        assert not re.search(
            r"url\(['\"]?(https?:)?//|@import", style.read_text(encoding="utf-8")
        ), style.name


@pytest.mark.parametrize("page", ["faq.html", "importers/torch.html"])
def test_the_search_works_from_the_disk(site: Path, page: str) -> None:
    """Where browsers start no workers."""
    if CHROMIUM is None:
        pytest.skip("needs a browser: apt-get install chromium")
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
    command = [CHROMIUM, "--headless", *sandbox, "--virtual-time-budget=20000", "--dump-dom"]
    asked = (site / page).as_uri() + "?q=truncated"
    shown = subprocess.run(
        [*command, asked], capture_output=True, text=True, timeout=120, check=True
    ).stdout
    assert "md-search-result__link" in shown
