"""What holds for all tests: where everything is meant to run (`CI` is set), a skipped test is a failure."""

import os

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = ["tests.servers"]
# Failures of the contract suite show their values. It must be said before anybody imports the suite.
pytest.register_assert_rewrite("echelon.testing.contract")

# How long an example takes depends on what else the machine does; pytest's own timeout catches what hangs.
settings.register_profile("echelon", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("echelon")


def pytest_sessionfinish(session: pytest.Session) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("CI") and reporter is not None and reporter.stats.get("skipped"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if os.environ.get("CI"):
        for report in terminalreporter.stats.get("skipped", []):
            reason = report.longrepr[2]
            terminalreporter.write_line(f"SKIPPED, which CI does not allow: {report.nodeid}: {reason}", red=True)
