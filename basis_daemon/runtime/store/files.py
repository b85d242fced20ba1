"""The store on disk: ordinary files below one directory (runtime.md 7.3, workspace.md 8).

    <root>/agents/<name>/agent.json         the record, replaced whole
    <root>/agents/<name>/transcript.jsonl   the log, only ever appended to
    <root>/agents/<name>/results/           full tool results, see `results.py`
    <root>/leases/<name>.lock               locked while the conversation is open
    <root>/rules.json                       remembered answers, see `rules.py`

Owns where things are, who may open them, and their removal. Others may keep files beside a conversation; they go with
it. A directory without a record is no conversation.
"""

import logging
import os
import time
from collections.abc import Sequence
from pathlib import Path

from basis_daemon.errors import CorruptStore, LegacyStore, NoSuchSession, StoreError
from basis_daemon.paths import make_private_directory
from basis_daemon.runtime.rules import RuleOwner, RuleStore
from basis_daemon.runtime.store.agent_file import Saved, listing, read_agent, remove_agent, write_newer
from basis_daemon.runtime.store.base import AgentRecord, ConversationLog, LoadedConversation
from basis_daemon.runtime.store.codec import AgentFile, encode_agent
from basis_daemon.runtime.store.disk import MAX_FILE_BYTES, Disk, failed, make_directory, sync_path
from basis_daemon.runtime.store.lease import Lease, acquire
from basis_daemon.runtime.store.log import LOG_NAME, FileLog
from basis_daemon.runtime.store.names import encode_name
from basis_daemon.runtime.store.recovery import LogEnd, recover
from basis_daemon.runtime.store.rules import FileRuleStore
from basis_daemon.runtime.store.sync import GroupCommit

logger = logging.getLogger(__name__)


class FileStore:
    """Implements `Store`. Thread-safe. Making one touches nothing on disk."""

    def __init__(self, root: Path, *, disk: Disk | None = None, max_file_bytes: int = MAX_FILE_BYTES) -> None:
        self._root = os.path.abspath(root)
        self._agents = f"{self._root}/agents"
        self._leases = f"{self._root}/leases"
        self._disk = disk or Disk()
        self._max_bytes = max_file_bytes
        self._commits = GroupCommit()
        self._rules = FileRuleStore(self._root, disk=self._disk)

    @property
    def root(self) -> Path | None:
        return Path(self._root)

    @property
    def rules(self) -> RuleStore:
        return self._rules

    def prepare(self) -> None:
        self._refuse_legacy()
        self._make_root()
        if not os.access(self._root, os.R_OK | os.W_OK | os.X_OK):
            raise StoreError(f"{self._root} can't be written to", hint="check its owner and permissions")

    def create(self, record: AgentRecord) -> ConversationLog:
        self._refuse_legacy()
        directory = self._directory(record.id)
        lease = self._lease(record.id)
        try:
            data = encode_agent(record, time.time_ns())
            try:
                self._start(directory, record.id, data)
            except OSError as error:
                raise failed("create", directory, error) from error
            log = self._log(directory, lease, LogEnd(0, 0))
        except BaseException:
            lease.release()
            raise
        log.adopt_newer(data, directory_is_new=True)
        self._commits.mark(log)
        return log

    def open(self, agent_id: str) -> tuple[LoadedConversation, ConversationLog]:
        self._require(agent_id)
        directory = self._directory(agent_id)
        lease = self._lease(agent_id)
        try:
            saved = self._require(agent_id)  # again, now that nobody else can change it
            conversation, end = self._recover(directory, saved)
            log = self._log(directory, lease, end)
        except BaseException:
            lease.release()
            raise
        if not saved.is_synced:
            log.adopt_newer(saved.data)
        return conversation, log

    def peek(self, agent_id: str) -> LoadedConversation:
        return self._recover(self._directory(agent_id), self._require(agent_id))[0]

    def record(self, agent_id: str) -> AgentRecord | None:
        saved = self._find(agent_id)
        return saved.file.record if saved is not None else None

    def list(self, runtime_identifier: str | None = None) -> Sequence[AgentRecord]:
        self._refuse_legacy()
        files = (file for name in self._names() if (file := self._listed(name)) is not None)
        return listing(files, runtime_identifier)

    def forget(self, agent_id: str) -> None:
        self._refuse_legacy()
        directory = self._directory(agent_id)
        if not os.path.lexists(directory):
            return
        lease = self._lease(agent_id)
        try:
            self._remove(directory)
        except FileNotFoundError:
            pass  # somebody else was faster
        except OSError as error:
            raise failed("remove", directory, error) from error
        finally:
            lease.release()
        self._forget_rules(agent_id)

    def directory(self, agent_id: str) -> Path | None:
        return Path(self._directory(agent_id))

    def close(self) -> None:
        self._commits.close()

    def _forget_rules(self, agent_id: str) -> None:
        """The conversation's own rules go with it (ST-27). They match nothing any more, so that a file of rules which
        can't be written keeps nobody from removing a conversation."""
        try:
            self._rules.clear(RuleOwner(agent_id), "session")
        except StoreError as error:
            logger.warning("the rules of session %s stay: %s", agent_id, error)

    # --- places ---

    def _directory(self, agent_id: str) -> str:
        return f"{self._agents}/{encode_name(agent_id)}"

    def _names(self) -> Sequence[str]:
        try:
            return os.listdir(self._agents)
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise failed("list", self._agents, error) from error

    def _refuse_legacy(self) -> None:
        try:
            names = os.listdir(self._root)
        except FileNotFoundError:
            return
        except OSError as error:
            raise failed("read", self._root, error) from error
        for name in sorted(names):
            if name == "runtime.sqlite" or (name.startswith("runtime-") and name.endswith(".sqlite")):
                raise LegacyStore(
                    f"{self._root} holds {name}, a database written by version 0.6 or earlier; it is not migrated",
                    hint="use that version for it, or move the directory aside or name another one for the store",
                    details={"directory": self._root, "file": name},
                )

    def _make_root(self) -> None:
        try:
            make_private_directory(Path(self._root))
        except OSError as error:
            raise failed("create", self._root, error) from error

    def _make_below_root(self, path: str) -> None:
        """One of the two directories of the root. Raises `StoreError`."""
        try:
            if os.path.isdir(path):
                return
            self._make_root()
            if make_directory(self._disk, path):
                sync_path(self._disk, self._root)
        except OSError as error:
            raise failed("create", path, error) from error

    # --- one conversation ---

    def _lease(self, agent_id: str) -> Lease:
        self._make_below_root(self._leases)
        return acquire(self._disk, f"{self._leases}/{encode_name(agent_id)}.lock", f"session {agent_id}")

    def _log(self, directory: str, lease: Lease, end: LogEnd) -> FileLog:
        return FileLog(
            directory=directory,
            lease=lease,
            commits=self._commits,
            disk=self._disk,
            end=end,
            max_bytes=self._max_bytes,
        )

    def _start(self, directory: str, agent_id: str, data: bytes) -> None:
        """Make the directory; the record, put there last, is what makes it a conversation (ST-7)."""
        self._make_below_root(self._agents)
        if not make_directory(self._disk, directory):
            if self._find(agent_id) is not None:
                raise StoreError(f"session {agent_id} exists already", details={"sessionId": agent_id})
            self._clear(directory)
        write_newer(self._disk, directory, data)

    def _clear(self, directory: str) -> None:
        """A creation or removal was cut short here: none of the store's old files may show up in what begins now."""
        remove_agent(self._disk, directory)
        if os.path.lexists(f"{directory}/{LOG_NAME}"):
            self._disk.unlink(f"{directory}/{LOG_NAME}")

    def _remove(self, directory: str) -> None:
        """The record goes first: from then on there is no conversation, and repeating this finishes the rest (ST-7)."""
        if os.path.islink(directory):
            self._disk.unlink(directory)
        else:
            remove_agent(self._disk, directory)
            self._disk.remove_tree(directory)
        sync_path(self._disk, self._agents)

    def _find(self, agent_id: str) -> Saved | None:
        self._refuse_legacy()
        directory = self._directory(agent_id)
        saved = read_agent(self._disk, directory)
        if saved is not None and saved.file.record.id != agent_id:
            raise CorruptStore(f"{directory} holds session {saved.file.record.id}", details={"path": directory})
        return saved

    def _require(self, agent_id: str) -> Saved:
        saved = self._find(agent_id)
        if saved is None:
            raise NoSuchSession(agent_id)
        return saved

    def _recover(self, directory: str, saved: Saved) -> tuple[LoadedConversation, LogEnd]:
        return recover(self._disk, f"{directory}/{LOG_NAME}", saved.file.record, max_bytes=self._max_bytes)

    def _listed(self, name: str) -> AgentFile | None:
        """The record in a directory, `None` (with a warning, ST-29) for one that can't be read."""
        directory = f"{self._agents}/{name}"
        try:
            saved = read_agent(self._disk, directory)
        except StoreError as error:
            logger.warning("a session is left out of the list: %s", error)
            return None
        if saved is None:
            return None
        if encode_name(saved.file.record.id) != name:
            logger.warning("a session is left out of the list: %s holds session %s", directory, saved.file.record.id)
            return None
        return saved.file
