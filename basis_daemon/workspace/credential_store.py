"""Keys a person has stored, by what they are for: in the system's keyring where there is one, else in a private file.

Owns `credentials.json`, which says of every key where it is: in the keyring, or right there. So whoever keeps nothing
in a keyring never loads one. Whose a key is and where it may be sent is `credentials.py`'s and the providers'.
"""

import os
import stat
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import msgspec

from basis_daemon.errors import ProviderSetupError
from basis_daemon.paths import make_private_directory
from basis_daemon.redact import Secret
from basis_daemon.workspace.keyring_access import Keyring

SCHEMA = 1
FILE = "credentials.json"
KEYRING_ANSWER_HOLDS_S = 60.0
"""Seconds a key read from the keyring is used without asking again; a key changed through here holds at once."""
OTHERS = stat.S_IRWXG | stat.S_IRWXO


class CredentialsUnreadable(ProviderSetupError):
    """The file of stored keys is not what it should be. Nothing of it was used, and it was left as it is."""

    kind = "credentials_unreadable"


@dataclass(frozen=True, slots=True)
class Stored:
    """A stored key, and where it is, in a person's words."""

    key: Secret
    source: str


class _Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where one key is: here, or in the keyring."""

    secret: str | None = None
    keyring: bool = False


class _File(msgspec.Struct, frozen=True):
    schema: int = SCHEMA
    credentials: dict[str, _Entry] = {}


class CredentialStore:
    """Blocking; for use in threads, by any number of them. Nothing is read or made before it is needed."""

    def __init__(self, directory: Path, *, keyring: Keyring | None = None) -> None:
        """`keyring` is the system's unless given; the file is kept in `directory`."""
        self.path = directory / FILE
        self._keyring = keyring or Keyring()
        self._lock = threading.RLock()
        self._read: dict[str, tuple[float, Secret]] = {}

    def names(self) -> list[str]:
        """What keys are stored for, sorted. Raises `CredentialsUnreadable`."""
        return sorted(self._load().credentials)

    def find(self, name: str) -> Stored | None:
        """The key stored for `name`. Raises `CredentialsUnreadable` and `KeyringUnavailable`."""
        with self._lock:
            entry = self._load().credentials.get(name)
            if entry is None:
                return None
            if entry.keyring:
                return Stored(self._from_keyring(name), "the keyring")
            return Stored(Secret(entry.secret or ""), f"the credentials file {self.path}")

    def put(self, name: str, key: Secret, *, in_file: bool = False) -> str:
        """Store `key` for `name` in place of what was, and return where it is now, in words.

        A keyring that is there but fails is an error, never a reason to write the key somewhere else. Raises
        `KeyringUnavailable` and `CredentialsUnreadable`.
        """
        with self._lock:
            entries = self._load().credentials
            if not in_file and self._keyring.name() is not None:
                self._keyring.put(name, key.reveal())
                entry, source = _Entry(keyring=True), "the keyring"
            else:
                if name in entries and entries[name].keyring:
                    self._keyring.drop(name)
                entry, source = _Entry(secret=key.reveal()), f"the credentials file {self.path}"
            self._save({**entries, name: entry})
            self._read.pop(name, None)
            return source

    def remove(self, name: str) -> bool:
        """Forget the key of `name`. Returns whether there was one. Raises as `put` does."""
        with self._lock:
            entries = self._load().credentials
            if name not in entries:
                return False
            if entries[name].keyring:
                self._keyring.drop(name)
            self._save({other: entry for other, entry in entries.items() if other != name})
            self._read.pop(name, None)
            return True

    # -----------------------------------------------------------------------------------------------------------------

    def _from_keyring(self, name: str) -> Secret:
        held = self._read.get(name)
        if held is not None and time.monotonic() - held[0] < KEYRING_ANSWER_HOLDS_S:
            return held[1]
        value = self._keyring.get(name)
        if not value:
            raise CredentialsUnreadable(
                f"the key for {name} was stored in the keyring, but is not there any more",
                hint=f"store it again: basisctl auth login {name}",
            )
        self._read[name] = (time.monotonic(), Secret(value))
        return self._read[name][1]

    def _load(self) -> _File:
        try:
            with self.path.open("rb") as file:
                self._require_private(os.fstat(file.fileno()))
                data = file.read()
        except FileNotFoundError:
            return _File()
        except OSError as error:
            raise CredentialsUnreadable(f"{self.path} can't be read: {error.strerror}") from None
        try:
            found = msgspec.json.decode(data, type=_File)
        except (msgspec.DecodeError, RecursionError):
            # Not quoted, and not kept as the cause: what can't be read may well be a key.
            raise CredentialsUnreadable(f"{self.path} is not a file of stored keys", hint=_BEGIN_ANEW) from None
        if found.schema > SCHEMA:
            raise CredentialsUnreadable(f"{self.path} has schema {found.schema}; this version reads up to {SCHEMA}")
        return found

    def _require_private(self, found: os.stat_result) -> None:
        """Windows keeps others out by where the file is; elsewhere its mode must."""
        if os.name != "posix":
            return
        if found.st_mode & OTHERS or found.st_uid != os.getuid():
            raise CredentialsUnreadable(
                f"{self.path} can be read by others (mode {stat.S_IMODE(found.st_mode):04o}): no key is taken from it",
                hint=f"if nobody has read it, run: chmod 600 {self.path}; otherwise have its keys replaced",
            )

    def _save(self, entries: dict[str, _Entry]) -> None:
        """Replace the file as a whole; at no moment can anybody else read it."""
        temporary = self.path.with_name(f".{FILE}.{os.getpid()}.new")
        data = msgspec.json.format(msgspec.json.encode(_File(credentials=dict(sorted(entries.items())))), indent=2)
        try:
            make_private_directory(self.path.parent)
            temporary.unlink(missing_ok=True)
            with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(data + b"\n")
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, self.path)
        except OSError as error:
            raise CredentialsUnreadable(f"{self.path} can't be written: {error.strerror}") from error


_BEGIN_ANEW = "mend it, or move it away and store the keys again: basisctl auth login"
