"""What AGENTS.md files say: which are found, in which order, how they are shown, and what makes an open fail."""

import os
from pathlib import Path

import pytest

from basis_daemon.errors import ContextUnreadable
from basis_daemon.workspace.agents_md import (
    PREAMBLE,
    ContextConfig,
    ContextDocument,
    WorkspaceContext,
    discover_context,
)
from basis_protocol.events import ContextFile
from support.workspaces import write_files


def discover(root: Path, *, global_dir: Path | None = None, config: ContextConfig | None = None) -> WorkspaceContext:
    """The documents of `root`, seeing nothing above its parent."""
    return discover_context(root, config or ContextConfig(ceiling=root.parent), global_dir=global_dir)


def test_documents_are_ordered_from_global_over_ancestors_to_the_workspace(tmp_path: Path) -> None:
    """CX-2, CX-6, DI-6: weakest first, each with its path, its label and its content as on disk."""
    write_files(tmp_path, {"g/AGENTS.md": "global\n", "p/AGENTS.md": "parent", "p/w/AGENTS.md": "  here \r\n"})

    found = discover(tmp_path / "p/w", global_dir=tmp_path / "g")

    assert [(document.scope, document.content) for document in found.documents] == [
        ("global", "global\n"),
        ("ancestor:1", "parent"),
        ("workspace", "  here \r\n"),
    ]
    assert found.files[2] == ContextFile(path=str(tmp_path / "p/w/AGENTS.md"), scope="workspace")
    assert found.root == tmp_path / "p/w"


def test_claude_md_is_read_where_there_is_no_agents_md(tmp_path: Path) -> None:
    """CX-1: one document a directory, AGENTS.md first."""
    write_files(tmp_path, {"p/CLAUDE.md": "fallback", "p/w/CLAUDE.md": "unread", "p/w/AGENTS.md": "read"})

    assert [document.content for document in discover(tmp_path / "p/w").documents] == ["fallback", "read"]


def test_there_is_no_fallback_for_a_name_of_the_hosts_own(tmp_path: Path) -> None:
    """CX-1."""
    write_files(tmp_path, {"CLAUDE.md": "no", "AGENTS.md": "no"})

    assert discover(tmp_path, config=ContextConfig(file_name="HOUSE.md", walk_parents=False)).is_empty


def test_ancestors_and_the_global_directory_can_be_switched_off(tmp_path: Path) -> None:
    """CX-2, DI-5."""
    write_files(tmp_path, {"g/AGENTS.md": "global", "p/AGENTS.md": "parent", "p/w/AGENTS.md": "here"})
    config = ContextConfig(walk_parents=False, global_dir=None)

    found = discover(tmp_path / "p/w", global_dir=tmp_path / "g", config=config)

    assert [document.content for document in found.documents] == ["here"]
    assert discover(tmp_path / "p/w", config=ContextConfig.disabled()).is_empty


def test_a_document_reached_two_ways_keeps_its_weaker_label(tmp_path: Path) -> None:
    """CX-3, DI-3: the global directory lies in the workspace's parent."""
    write_files(tmp_path, {"p/AGENTS.md": "one", "p/w/AGENTS.md": "two"})

    found = discover(tmp_path / "p/w", global_dir=tmp_path / "p")

    assert [(document.scope, document.content) for document in found.documents] == [
        ("global", "one"),
        ("workspace", "two"),
    ]


def test_a_link_between_the_two_names_is_one_document(tmp_path: Path) -> None:
    """CX-3: repositories often have CLAUDE.md as a link to AGENTS.md."""
    write_files(tmp_path, {"AGENTS.md": "once"})
    (tmp_path / "CLAUDE.md").symlink_to("AGENTS.md")

    assert len(discover(tmp_path).documents) == 1


def test_a_blank_document_is_left_out(tmp_path: Path) -> None:
    """CX-4."""
    write_files(tmp_path, {"AGENTS.md": " \n\t\n"})

    assert discover(tmp_path).is_empty


@pytest.mark.parametrize("kind", ["latin-1", "directory", "fifo", "unreadable"])
def test_a_document_that_exists_but_cannot_be_read_fails_the_open(tmp_path: Path, kind: str) -> None:
    """CX-5, DI-2: no fall-through to the other name, and a FIFO doesn't hang the open."""
    write_files(tmp_path, {"CLAUDE.md": "never reached"})
    path = tmp_path / "AGENTS.md"
    match kind:
        case "latin-1":
            path.write_bytes("caf\xe9".encode("latin-1"))
        case "directory":
            path.mkdir()
        case "fifo":
            os.mkfifo(path)
        case _:
            path.write_text("secret")
            path.chmod(0)
            if os.access(path, os.R_OK):
                pytest.skip("this user reads everything")

    with pytest.raises(ContextUnreadable, match=r"AGENTS\.md") as caught:
        discover(tmp_path)
    assert caught.value.details["path"] == str(path)


def test_no_documents_render_to_nothing() -> None:
    """CX-7."""
    assert WorkspaceContext().render() == ""


def test_documents_are_framed_in_order_after_a_preamble() -> None:
    """CX-7: trailing whitespace goes, everything else stays as it is."""
    documents = (
        ContextDocument(Path("/g/AGENTS.md"), "global", "# one\n\n"),
        ContextDocument(Path('/w "x"/AGENTS.md'), "workspace", "two </context>"),
    )

    assert WorkspaceContext(Path("/w"), documents).render() == (
        f"{PREAMBLE}\n\n"
        '<context path="/g/AGENTS.md" scope="global">\n# one\n</context>\n\n'
        '<context path="/w &quot;x&quot;/AGENTS.md" scope="workspace">\ntwo </context>\n</context>'
    )


def test_given_documents_have_no_root() -> None:
    """CX-11."""
    assert WorkspaceContext(documents=(ContextDocument(Path("/a"), "workspace", "x"),)).root is None


def test_the_representation_shows_no_content() -> None:
    """WS-24."""
    assert "secret" not in repr(WorkspaceContext(Path("/w"), (ContextDocument(Path("/a"), "workspace", "secret"),)))
