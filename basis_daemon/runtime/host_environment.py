"""What kind of place this process runs in. For information: nothing is allowed or refused by it (RT-17)."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

HostEnvironment = Literal["ci", "docker", "container", "host"]

CI_VARIABLES = ("CI", "CONTINUOUS_INTEGRATION", "GITHUB_ACTIONS", "GITLAB_CI", "BUILDKITE", "JENKINS_URL", "TF_BUILD")
"""Set by what builds software, each to some value that is neither empty nor a no."""

CGROUP_MARKERS = ("docker", "containerd", "kubepods", "libpod", "lxc")


def detect_environment(environ: Mapping[str, str] = os.environ, root: Path = Path("/")) -> HostEnvironment:
    """CI outranks the container it usually runs in. Looks at three files below `root`: nothing that takes time."""
    if any(environ.get(name, "").strip().lower() not in ("", "0", "false", "no") for name in CI_VARIABLES):
        return "ci"
    if (root / ".dockerenv").exists():
        return "docker"
    if (root / "run" / ".containerenv").exists() or _is_grouped(root / "proc" / "self" / "cgroup"):
        return "container"
    return "host"


def _is_grouped(cgroup: Path) -> bool:
    try:
        text = cgroup.read_text("utf-8", errors="replace")
    except OSError:  # not a Linux
        return False
    return any(marker in text for marker in CGROUP_MARKERS)
