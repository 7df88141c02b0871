"""Notices at once when another instance's processes on this machine end."""

import asyncio
import os
from collections.abc import Callable

from echelon.group.records import Machine
from echelon.group.world import World
from echelon.members.machine import is_gone


class Neighbours:
    """Watches the processes of other instances on the same machine; `on_gone` is called with an instance's id.

    Only proof counts: where the system cannot tell, nothing is ever said.
    """

    def __init__(self, here: Machine | None, on_gone: Callable[[str], None]) -> None:
        self._here = here
        self._on_gone = on_gone
        self._watched: dict[str, list[int]] = {}

    def look(self, world: World, me: str) -> None:
        """Begin to watch who has joined, and stop watching who has left."""
        if self._here is None:
            return
        for name in [name for name in self._watched if name not in world.instances]:
            self._forget(name)
        for instance in world.instances.values():
            if instance.id != me and instance.id not in self._watched and instance.profile.machine is not None:
                self._watch(instance.id, instance.profile.machine)

    def close(self) -> None:
        """Stop watching everybody."""
        for instance in list(self._watched):
            self._forget(instance)

    def _watch(self, instance: str, machine: Machine) -> None:
        assert self._here is not None
        self._watched[instance] = []
        if (machine.boot, machine.namespace) != (self._here.boot, self._here.namespace):
            return
        for pid, _ in machine.processes:
            try:
                descriptor = os.pidfd_open(pid)
            except OSError:
                continue
            self._watched[instance].append(descriptor)
            asyncio.get_running_loop().add_reader(descriptor, self._ended, descriptor, instance, machine)
        self._check(instance, machine)

    def _ended(self, descriptor: int, instance: str, machine: Machine) -> None:
        """One process of the instance has ended; its descriptor would go on saying so."""
        asyncio.get_running_loop().remove_reader(descriptor)
        self._check(instance, machine)

    def _check(self, instance: str, machine: Machine) -> None:
        assert self._here is not None
        if is_gone(machine, self._here):
            self._forget(instance)
            self._watched[instance] = []
            self._on_gone(instance)

    def _forget(self, instance: str) -> None:
        for descriptor in self._watched.pop(instance, ()):
            asyncio.get_running_loop().remove_reader(descriptor)
            os.close(descriptor)
