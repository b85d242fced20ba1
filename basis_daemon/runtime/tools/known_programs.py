"""What is known of programs, for `classify.py`. Data only: a new program or option is a line here."""

BY_SEVERITY = (
    "read_only",
    "write",
    "unknown",
    "process_management",
    "package_management",
    "network",
    "system_admin",
    "destructive",
)
"""Intents, the least worrying first."""

PROGRAMS: dict[str, str] = {
    name: intent
    for intent, names in {
        "read_only": "ls cat head tail grep egrep fgrep rg find fd stat du df env printenv echo printf date test [ [[ "
        "pwd diff cmp comm md5sum sha1sum sha256sum sha512sum cksum sum jq yq tr cut awk sed sort uniq wc nl od xxd "
        "hexdump strings file tree which type whereis whoami id groups uname hostname arch uptime free realpath "
        "readlink basename dirname seq true false : sleep cd pushd popd export set unset alias less more man tac rev "
        "fold fmt column paste join tput locale getconf nproc lscpu lsblk git",
        "write": "cp mv mkdir rmdir touch chmod chown chgrp ln install tee truncate mkfifo mknod dd patch split csplit",
        "destructive": "rm shred wipefs unlink",
        "network": "curl wget ssh scp rsync ftp sftp nc ncat telnet ping traceroute dig nslookup host whois ifconfig "
        "ip netstat ss nmap",
        "process_management": "kill pkill killall ps top htop bg fg jobs nohup disown wait nice renice",
        "package_management": "apt apt-get yum dnf pacman brew pip pip3 npm yarn pnpm bun cargo gem go rustup snap "
        "flatpak uv pipx",
        "system_admin": "sudo doas su chroot mount umount fdisk parted systemctl service iptables ufw sysctl crontab "
        "at useradd userdel usermod groupadd groupdel groupmod passwd visudo reboot shutdown halt poweroff",
    }.items()
    for name in names.split()
}

READ_ONLY_GIT = frozenset(
    (
        *("status", "log", "diff", "show", "branch", "tag", "stash", "remote", "fetch", "ls-files", "ls-tree"),
        *("cat-file", "rev-parse", "describe", "shortlog", "blame", "bisect", "reflog", "config", "grep", "version"),
        "help",
    )
)
"""Subcommands that look, unless their arguments say otherwise."""
NETWORK_GIT = frozenset(("push", "pull", "clone"))
GIT_OPTIONS_WITH_VALUE = frozenset(("-C", "-c", "--git-dir", "--work-tree", "--namespace"))

SHELLS = frozenset(("sh", "bash", "dash", "zsh", "ksh", "ash", "fish"))
INTERPRETERS = SHELLS | {"python", "python3", "node", "perl", "ruby"}
DOWNLOADERS = frozenset(("curl", "wget"))

IN_PLACE = {"sed": ("i", "--in-place"), "yq": ("i", "--inplace"), "sort": ("o", "--output")}
"""Programs that only look unless they are given this option."""

WRAPPERS: dict[str, frozenset[str]] = {
    "sudo": frozenset(("-u", "-g", "-h", "-p", "-C", "-r", "-t", "-U", "-D", "-R", "-T")),
    "doas": frozenset(("-u", "-C")),
    "env": frozenset(("-u", "--unset", "-C", "--chdir", "-S")),
    "xargs": frozenset(("-I", "-i", "-n", "-P", "-L", "-d", "-E", "-s", "-a", "--max-args", "--max-procs")),
    "nohup": frozenset(),
    "nice": frozenset(("-n",)),
    "ionice": frozenset(("-c", "-n", "-p")),
    "timeout": frozenset(("-k", "-s")),
    "time": frozenset(("-f", "-o")),
    "stdbuf": frozenset(("-i", "-o", "-e")),
    "setsid": frozenset(),
    "command": frozenset(),
    "builtin": frozenset(),
    "exec": frozenset(("-a",)),
    "watch": frozenset(("-n",)),
}
"""Programs that run the command in their arguments, and their options that take a value."""

KEYWORDS = frozenset(("if", "then", "else", "elif", "fi", "do", "done", "while", "until", "!", "{", "}"))
CLAUSES = frozenset(("for", "case", "select", "function", "esac", "in"))
"""Words after which no command stands in the same clause."""

SYSTEM_DIRECTORIES = (
    *("/etc/", "/usr/", "/var/", "/boot/", "/sys/", "/proc/", "/dev/", "/sbin/", "/lib/", "/opt/", "/bin/"),
)
PROGRAM_DIRECTORIES = frozenset(("", "/bin", "/usr/bin", "/usr/local/bin", "/sbin", "/usr/sbin", "/opt/homebrew/bin"))

STEERING_VARIABLES = (
    "PATH",
    "LD_",
    "DYLD_",
    "GIT_",
    "BASH_ENV",
    "ENV",
    "IFS",
    "PAGER",
    "PYTHON",
    "NODE_OPTIONS",
    "PERL5",
)
"""Variables that decide which programs run, by how they begin."""

HARMLESS_OUTPUTS = frozenset(("/dev/null", "/dev/stdout", "/dev/stderr", "/dev/tty", "-"))

SUGGESTED_PROGRAMS = frozenset(
    (
        *("ls", "cat", "head", "tail", "wc", "grep", "rg", "stat", "du", "df", "file", "pwd", "diff", "cmp", "tree"),
        *("pytest", "ruff", "mypy", "pyright", "eslint", "prettier", "tsc", "jest", "vitest", "shellcheck", "stylua"),
    )
)
"""Programs a lasting answer is suggested for whatever their arguments: they look, check or test."""

SUGGESTED_SUBCOMMANDS: dict[str, frozenset[str]] = {
    "git": frozenset(("status", "log", "diff", "show", "blame", "ls-files", "rev-parse", "add", "commit", "describe")),
    "cargo": frozenset(("build", "check", "test", "clippy", "fmt", "doc")),
    "go": frozenset(("build", "test", "vet", "fmt")),
    **{name: frozenset(("test", "run")) for name in ("npm", "pnpm", "yarn", "bun")},
}
"""Subcommands a lasting answer is suggested for; behind `run` the script's name belongs to it."""
