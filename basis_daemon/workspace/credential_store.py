"""Keys a person has stored, by what they are for: in the system's keyring where there is one, else in a private file.

Owns `credentials.json`, which says of every key where it is: in the keyring, or right there. So whoever keeps nothing
in a keyring never loads one. Whose a key is and where it may be sent is `credentials.py`'s and the providers'.
"""

import fcntl
import os
import stat
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from basis_daemon.errors import ProviderSetupError
from basis_daemon.paths import make_private_directory, open_regular
from basis_daemon.redact import Secret
from basis_daemon.workspace.keyring_access import Keyring

SCHEMA = 1
FILE = "credentials.json"
KEYRING_ANSWER_HOLDS_S = 60.0
"""Seconds a key read from the keyring is used without asking again; a key changed through here holds at once."""
LOCK_WAIT_S = 5.0
"""Seconds another process may take to write the file; it holds the lock for a few milliseconds."""
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
    """Blocking; for use in threads, by any number of them, and beside other processes that use the same file. Nothing
    is read or made before it is needed. Whoever looks a key up waits for nobody who stores one."""

    def __init__(self, directory: Path, *, keyring: Keyring | None = None) -> None:
        """`keyring` is the system's unless given; the file is kept in `directory`."""
        self.path = directory / FILE
        self._keyring = keyring or Keyring()
        self._writing = threading.Lock()
        self._remembering = threading.Lock()
        self._read: dict[str, tuple[float, Secret]] = {}
        self._changes = 0

    def names(self) -> list[str]:
        """What keys are stored for, sorted. Raises `CredentialsUnreadable`."""
        return sorted(self._load().credentials)

    def find(self, name: str) -> Stored | None:
        """The key stored for `name`. Raises `CredentialsUnreadable` and `KeyringUnavailable`."""
        entry = self._load().credentials.get(name)
        if entry is None:
            return None
        if entry.keyring:
            return Stored(self._from_keyring(name), "the keyring")
        if not (entry.secret or "").strip():
            raise CredentialsUnreadable(f"{self.path} holds a blank key for {name}", hint=_store_again(name))
        return Stored(Secret(str(entry.secret)), f"the credentials file {self.path}")

    def put(self, name: str, key: Secret, *, in_file: bool = False) -> str:
        """Store `key` for `name` in place of what was, and return where it is now, in words.

        A keyring that is there but fails is an error, never a reason to write the key somewhere else. Raises
        `KeyringUnavailable` and `CredentialsUnreadable`.
        """
        with self._writing:
            # What a keyring is asked takes as long as a person does; the file is locked only afterwards.
            entries = self._load().credentials
            if not in_file and self._keyring.name() is not None:
                self._keyring.put(name, key.reveal())
                entry, source = _Entry(keyring=True), "the keyring"
            else:
                if name in entries and entries[name].keyring:
                    self._keyring.drop(name)
                entry, source = _Entry(secret=key.reveal()), f"the credentials file {self.path}"
            with self._locked():
                self._save({**self._load().credentials, name: entry})
            self._forget(name)
            return source

    def remove(self, name: str) -> bool:
        """Forget the key of `name`. Returns whether there was one. Raises as `put` does."""
        with self._writing:
            entries = self._load().credentials
            if name in entries and entries[name].keyring:
                self._keyring.drop(name)
            if not self.path.parent.is_dir():
                return False
            with self._locked():
                entries = dict(self._load().credentials)
                found = entries.pop(name, None)
                if found is not None:
                    self._save(entries)
            self._forget(name)
            return found is not None

    # -----------------------------------------------------------------------------------------------------------------

    def _from_keyring(self, name: str) -> Secret:
        held, changes = self._read.get(name), self._changes
        if held is not None and time.monotonic() - held[0] < KEYRING_ANSWER_HOLDS_S:
            return held[1]
        value = self._keyring.get(name)
        if not value:
            raise CredentialsUnreadable(
                f"the key for {name} was stored in the keyring, but is not there any more",
                hint=_store_again(name),
            )
        key = Secret(value)
        with self._remembering:
            if changes == self._changes:  # else it may be what was there before
                self._read[name] = (time.monotonic(), key)
        return key

    def _forget(self, name: str) -> None:
        """The key has changed: what was read of it counts no longer."""
        with self._remembering:
            self._changes += 1
            self._read.pop(name, None)

    def _load(self) -> _File:
        try:
            with open_regular(self.path) as file:
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
        if found.schema != SCHEMA:
            raise CredentialsUnreadable(f"{self.path} has schema {found.schema}; this version reads only {SCHEMA}")
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

    @contextmanager
    def _locked(self) -> Generator[None]:
        """Keep other processes from writing, and clear away what one that was killed has left: a key is in it.

        Raises `CredentialsUnreadable` when somebody else writes all the time.
        """
        try:
            make_private_directory(self.path.parent)
            lock = os.open(self.path.parent, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise self._unwritten(error) from error
        try:
            deadline = time.monotonic() + LOCK_WAIT_S
            while not _is_taken(lock):
                if time.monotonic() > deadline:
                    raise CredentialsUnreadable(
                        f"another process has been writing {self.path} for {LOCK_WAIT_S:g} s",
                        hint="try again; if it stays so, end that process",
                    )
                time.sleep(0.01)
            self._temporary().unlink(missing_ok=True)
            yield
        except OSError as error:
            raise self._unwritten(error) from error
        finally:
            os.close(lock)

    def _save(self, entries: dict[str, _Entry]) -> None:
        """Replace the file as a whole, under the lock; at no moment can anybody else read it."""
        temporary = self._temporary()
        data = msgspec.json.format(msgspec.json.encode(_File(credentials=dict(sorted(entries.items())))), indent=2)
        try:
            with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(data + b"\n")
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, os.path.realpath(self.path))
        except OSError:
            temporary.unlink(missing_ok=True)
            raise

    def _temporary(self) -> Path:
        """Beside the file itself: a person may keep it elsewhere and a link to it here."""
        return Path(os.path.realpath(self.path)).with_name(f".{FILE}.new")

    def _unwritten(self, error: OSError) -> CredentialsUnreadable:
        return CredentialsUnreadable(f"{self.path} can't be written: {error.strerror}")


def _is_taken(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _store_again(name: str) -> str:
    return f"store it again: basisctl auth login {'--base-url ' if '://' in name else ''}{name}"


_BEGIN_ANEW = "mend it, or move it away and store the keys again: basisctl auth login PROVIDER"
