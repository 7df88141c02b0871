"""What the local servers have in common: a data folder with a state file, a port, a life cycle.

The data folder holds everything: `server.json` (which process, which port), `server.log`, the configuration
and the server's data. Any program that knows the folder can find the server again, and stop it.
"""

import logging
import os
import random
import signal
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

import msgspec

from echelon.errors import BrokerError, InvalidConfig, Unreachable
from echelon.local.lock import locked
from echelon.local.process import Process, spawn

log = logging.getLogger(__name__)

HOST = "127.0.0.1"

# Below the range that systems take for outgoing connections: none of them takes the port while the server is
# down, and a client that reconnects to it cannot get connected to itself.
_PORTS = range(12_000, 30_000)


class State(msgspec.Struct, frozen=True):
    """What the state file says. After a `stop` there is no process, but the port is kept for the next start."""

    server: str
    port: int
    process: Process | None


def read_state(data: Path) -> State | None:
    """What the state file in a data folder says; None if no server was ever started there."""
    file = data / "server.json"
    try:
        return msgspec.json.decode(file.read_bytes(), type=State)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise InvalidConfig(
            f"{file} cannot be read: {error}", remedy="Stop the server by hand if it runs, then delete the file"
        ) from error


class Server(ABC):
    """A server on loopback, running from its data folder, independent of the program that started it.

    All methods block. A context manager: entering starts the server, leaving stops it. Once started, an
    object keeps its port over restarts.
    """

    name: ClassVar[str]
    start_seconds: ClassVar[float]
    stop_seconds: ClassVar[float]

    def __init__(self, data: Path, *, port: int | None = None) -> None:
        self.data = data.absolute()
        self._port = port

    @property
    def url(self) -> str:
        """Where the server is to be reached. Raises BrokerError if it was never started."""
        return f"{self.name}://{HOST}:{self.port}"

    @property
    def port(self) -> int:
        """The port of the server, also while it is down. Raises BrokerError if it was never started."""
        return self._known().port

    @property
    def pid(self) -> int:
        """The process that runs the server. Raises BrokerError if none does."""
        return self._running().pid

    @property
    def log(self) -> Path:
        """What the server's process has written."""
        return self.data / "server.log"

    def status(self) -> str:
        """One of `up`, `not answering`, `died` (without having been stopped) and `down`."""
        state = self._state()
        if state is None or state.process is None:
            return "down"
        if not state.process.alive():
            return "died"
        return "up" if self._answers(state.port, 1.0) else "not answering"

    def start(self) -> bool:
        """Start the server, and return True when it answers; False if it was running already.

        Raises MissingComponent if a program or library is needed first, InvalidConfig if the port is taken or
        the folder is another server's, BrokerError with the end of the log if the process exits, and
        Unreachable if it does not answer in time.
        """
        with self._locked():
            state = self._state()
            if state and state.process and state.process.alive():
                if self._port not in (None, state.port):
                    raise InvalidConfig(
                        f"{self.name} in {self.data} is up already, on port {state.port} instead of {self._port}",
                        remedy="Stop it first, or use that port",
                    )
                self._port = state.port
                self._wait(state.process, state.port)
                return False
            log.info("Starting %s in %s", self.name, self.data)
            port = self._choose_port(state)
            command = self._prepare(port)
            self.log.unlink(missing_ok=True)
            process = spawn(command, self.log)
            self._save(State(self.name, port, process))
            try:
                self._wait(process, port)
            except BaseException:  # Also when the user interrupts.
                process.signal(signal.SIGKILL)
                process.wait(self.stop_seconds)
                self._save(State(self.name, port, None))
                raise
            self._port = port
            return True

    def stop(self) -> bool:
        """Stop the server and wait until it is gone: at first politely. False if it was not running."""
        return self._end(signal.SIGTERM)

    def kill(self) -> bool:
        """Take the server away at once, as a crash does. False if it was not running."""
        return self._end(signal.SIGKILL)

    def pause(self) -> None:
        """Freeze the server: connections stay open, and nothing is answered once this returns."""
        self._running().signal(signal.SIGSTOP)
        # The signal reaches the threads one by one.
        while self._answers(self.port, 0.1):
            pass

    def resume(self) -> None:
        """End a `pause`."""
        self._running().signal(signal.SIGCONT)

    def restart(self) -> None:
        """Stop the server and start it again on the same port and data."""
        self.stop()
        self.start()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @abstractmethod
    def _prepare(self, port: int) -> Sequence[str]:
        """Make what the server needs in its data folder, and return the command that runs it on `port`."""

    @abstractmethod
    def _answers(self, port: int, seconds: float) -> bool:
        """Whether the server on `port` answers as it should, asked once."""

    def _wait(self, process: Process, port: int) -> None:
        deadline = time.monotonic() + self.start_seconds
        while not self._answers(port, 1.0):
            if not process.alive():
                raise BrokerError(f"{self.name} exited while starting; the end of {self.log}:\n{self._log_end()}")
            if time.monotonic() > deadline:
                raise Unreachable(
                    f"{self.name} did not answer on port {port} within {self.start_seconds:.0f} s",
                    remedy=f"See {self.log}",
                )
            time.sleep(0.02)

    def _log_end(self) -> str:
        return last_lines(self.log.read_text(errors="replace") if self.log.exists() else "")

    def _end(self, how: signal.Signals) -> bool:
        if self._state() is None:
            return False
        with self._locked():
            state = self._known()
            if state.process is None:
                return False
            process = state.process
            was_alive = process.alive()
            process.signal(how)
            process.signal(signal.SIGCONT)  # A paused process would not see the signal before.
            if not process.wait(self.stop_seconds):
                process.signal(signal.SIGKILL)
                process.wait(self.stop_seconds)
            self._save(msgspec.structs.replace(state, process=None))
            return was_alive

    def _choose_port(self, state: State | None) -> int:
        if self._port is not None:
            if not _is_free(self._port):
                raise InvalidConfig(
                    f"port {self._port} on {HOST} is taken, so {self.name} cannot have it",
                    remedy="Choose another port, or none to get a free one",
                )
            return self._port
        if state and _is_free(state.port):
            return state.port
        return free_port()

    def _known(self) -> State:
        state = self._state()
        if state is None:
            raise BrokerError(f"{self.name} in {self.data} was never started")
        return state

    def _running(self) -> Process:
        process = self._known().process
        if process is None or not process.alive():
            raise BrokerError(f"{self.name} in {self.data} is not running")
        return process

    def _state(self) -> State | None:
        state = read_state(self.data)
        if state is not None and state.server != self.name:
            raise InvalidConfig(
                f"{self.data} is the data folder of {state.server}, not of {self.name}", remedy="Choose another folder"
            )
        return state

    def _save(self, state: State) -> None:
        new = self.data / "server.json.new"
        new.write_bytes(msgspec.json.format(msgspec.json.encode(state)))
        new.replace(self.data / "server.json")

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Two programs do not start or stop the same server at once."""
        lock = self.data / "server.lock"
        try:
            self.data.mkdir(parents=True, exist_ok=True)
            lock.touch()
        except OSError as error:
            raise InvalidConfig(
                f"{self.data} cannot be used for {self.name}'s data: {error.strerror}", remedy="Choose another folder"
            ) from error
        with locked(lock, waiting_for=f"starts or stops {self.name} in {self.data}"):
            yield


def last_lines(output: str) -> str:
    """The end of what a program said, indented; without Java's stack frames, which would hide the message."""
    lines = [line for line in output.splitlines() if not line.startswith("\tat ")]
    return "\n".join(f"  {line}" for line in lines[-10:])


def free_port(but: Container[int] = ()) -> int:
    """A port on loopback that nobody listens on now, outside the range of outgoing connections."""
    while True:
        port = random.choice(_PORTS)
        if port not in but and _is_free(port):
            return port


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As servers do: connections that are still closing do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def default_data(name: str) -> Path:
    """The data folder of a server for which no other is named."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state") / "echelon" / name
