"""Skills as a workspace has them: where they are found, whose come first, and how long they are there."""

import os
from pathlib import Path

import pytest

from basis_daemon.runtime.providers.scripted import ScriptedCall, ScriptedProvider, text, tool_calls
from basis_daemon.runtime.runtime import Runtime
from basis_daemon.runtime.skills import InvalidFrontmatter
from basis_daemon.workspace.builder import WorkspaceBuilder
from basis_daemon.workspace.skills import SkillHold, SkillsConfig, discover_skill_roots
from basis_daemon.workspace.workspace import Workspace
from basis_protocol.events import RunStarted
from support.conversations import Allow
from support.workspaces import bounded, sample_repository, write_files

pytestmark = pytest.mark.anyio

HEAD = "---\nname: {name}\ndescription: {description}\n---\n{body}\n"


def skill(name: str, description: str = "It helps.", body: str = "Do it.") -> str:
    return HEAD.format(name=name, description=description, body=body)


def found(directory: Path, config: SkillsConfig | None = None, *, global_dir: str | None = "g") -> list[str]:
    """The places of workspace `w`, with `g` as global and `h` as home directory."""
    root = directory / "w"
    places = discover_skill_roots(
        root,
        config or SkillsConfig(),
        global_dir=directory / global_dir if global_dir else None,
        environment={"HOME": str(directory / "h")},
    )
    return [f"{place.scope} {os.path.relpath(place.path, root.parent)}" for place in places]


def test_four_places_most_specific_first(tmp_path: Path) -> None:
    """SK-1, SK-3: those that are directories, canonical, each once; the workspace's mention survives."""
    tmp_path = tmp_path.resolve()
    for place in ("w/.basis/skills", "w/.agents/skills", "g/skills", "h/.agents/skills"):
        (tmp_path / place).mkdir(parents=True)
    four = ["workspace w/.basis/skills", "workspace w/.agents/skills", "global g/skills", "global h/.agents/skills"]
    assert found(tmp_path) == four

    (tmp_path / "g/skills").rmdir()
    (tmp_path / "g/skills").write_text("no directory")
    (tmp_path / "h/.agents/skills").rmdir()
    (tmp_path / "h/.agents/skills").symlink_to(tmp_path / "w/.agents/skills")
    assert found(tmp_path) == four[:2]


def test_personal_places_and_all_of_them_can_be_switched_off(tmp_path: Path) -> None:
    """SK-2, DI-5."""
    tmp_path = tmp_path.resolve()
    for place in ("w/prose", "w/.agents/skills", "g/skills", "h/.agents/skills"):
        (tmp_path / place).mkdir(parents=True)
    own = SkillsConfig(workspace_subdir="prose", global_dir=None)
    assert found(tmp_path, own) == ["workspace w/prose", "workspace w/.agents/skills"]
    assert found(tmp_path, SkillsConfig.disabled()) == []
    assert found(tmp_path, global_dir=None) == ["workspace w/.agents/skills"]


@pytest.fixture
def model() -> ScriptedProvider:
    return ScriptedProvider()


def on(runtime: Runtime, root: Path, model: ScriptedProvider) -> WorkspaceBuilder:
    return bounded(Workspace.builder(root).with_runtime(runtime)).with_provider(model.id).with_model("m")


async def test_model_is_told_of_skills_and_reads_the_one_it_needs(tmp_path: Path, model: ScriptedProvider) -> None:
    """SK-4, SK-5, TR-2, CX-8: behind everything else in the system prompt; the header names them."""
    root = sample_repository(
        tmp_path / "w",
        {
            ".basis/skills/review/SKILL.md": skill("review", "Look at a change.", "Look twice."),
            ".agents/skills/review/SKILL.md": skill("review", "Covered."),
        },
    )
    model.push(tool_calls(ScriptedCall("load_skill", {"name": "review"})))
    model.push(text("done"))
    builder = Runtime.builder().with_ephemeral_history().with_provider_instance(model)
    async with builder.build() as runtime, await on(runtime, root, model).open() as workspace:
        assert [(each.name, each.root) for each in workspace.skills] == [("review", workspace.root / ".basis/skills")]
        run = workspace.prepare()
        events: list[object] = []
        await run.send("go", emit=events.append, approver=Allow())

    system = model.recorded_requests()[0].system or ""
    assert system.endswith("- review: Look at a change.\n</skills>") and "Run the tests" in system
    result = model.recorded_requests()[1].messages[-1].content[0]
    assert getattr(result, "content") == '<skill name="review">\nLook twice.\n</skill>'  # noqa: B009
    (header,) = [event for event in events if isinstance(event, RunStarted)]
    assert header.skills_dirs == [f"{workspace.root}/.basis/skills", f"{workspace.root}/.agents/skills"]
    assert [(each.name, each.description) for each in header.skills] == [("review", "Look at a change.")]


async def test_siblings_share_skills_while_they_are_open(tmp_path: Path, model: ScriptedProvider) -> None:
    """SH-3, SH-5, SH-6, SH-7, SH-8: each prefers its own; a shared root goes with the last; a snapshot stays."""
    one = sample_repository(tmp_path / "one", {".basis/skills/x/SKILL.md": skill("same", body="one's")})
    two = sample_repository(tmp_path / "two", {".basis/skills/x/SKILL.md": skill("same", body="two's")})
    write_files(tmp_path / "g", {"skills/p/SKILL.md": skill("personal")})
    builder = Runtime.builder().with_ephemeral_history().with_provider_instance(model)
    async with builder.build() as runtime:
        first = await on(runtime, one, model).with_global_dir(tmp_path / "g").open()
        second = await on(runtime, two, model).with_global_dir(tmp_path / "g").open()
        assert [each.name for each in second.skills] == ["personal", "same"]
        assert {each.root for each in second.skills if each.name == "same"} == {second.root / ".basis/skills"}
        assert len(runtime.skill_table.roots) == 3

        await first.aclose()
        assert [each.name for each in runtime.skills()] == ["personal", "same"]
        assert runtime.skill_body("same") == "two's"
        await second.aclose()
        assert runtime.skills() == [] and [each.name for each in first.skills] == ["personal", "same"]
        assert runtime.registry.find("load_skill") is None


async def test_malformed_skill_fails_the_open_and_changes_nothing(tmp_path: Path, model: ScriptedProvider) -> None:
    """SK-7, DI-2, OP-3: the file is named."""
    root = sample_repository(tmp_path / "w", {".basis/skills/bad/SKILL.md": "---\nname: x\n"})
    builder = Runtime.builder().with_ephemeral_history().with_provider_instance(model)
    async with builder.build() as runtime:
        with pytest.raises(InvalidFrontmatter, match=r"\.basis/skills/bad/SKILL\.md: the frontmatter"):
            await on(runtime, root, model).open()
        assert runtime.skill_table.roots == []
        async with await on(runtime, root, model).without_discovery().open() as workspace:
            assert workspace.skills == []


def test_roots_given_back_while_they_are_read_are_not_kept(tmp_path: Path) -> None:
    """OP-7: an open that is cancelled meanwhile leaves no hold behind."""
    write_files(tmp_path, {"skills/x/SKILL.md": skill("x")})
    with_roots = Runtime.builder().with_ephemeral_history().build().skill_table
    hold = SkillHold(with_roots, [tmp_path.resolve() / "skills"])
    hold.release()
    hold.take()
    hold.release()
    assert with_roots.roots == []
