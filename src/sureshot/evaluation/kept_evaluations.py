"""What a comparison in sessions has found so far, in a folder: an interrupted one goes on where it was.

Every method and seed has a small file, written whole when it ends and named by a digest of all that determines it: the
method and its options, the seed, the rows and their sessions. So other settings, or other data under the same name,
find no file and are run; what was found before lies beside.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from sureshot.data.labelled import digest
from sureshot.evaluation.session_config import MethodConfig
from sureshot.evaluation.sessions import SessionsEvaluation
from sureshot.incremental.sessions import Sessions
from sureshot.networks.checkpoint import BEST_NAME
from sureshot.persistence import written_whole


@dataclass(frozen=True)
class KeptEvaluations:
    """The evaluations in a folder, which is made when something is kept; nothing is kept without one."""

    folder: Path | None

    def find(self, sessions: Sessions, method: MethodConfig, seed: int) -> SessionsEvaluation | None:
        """The method's way through these sessions, or None.

        Raises
        ------
        ValueError
            If its file is damaged.
        """
        if self.folder is None:
            return None
        settings = _settings(sessions, method, seed)
        path = self.folder / _file_name(settings)
        if not path.is_file():
            return None
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            if record["settings"] != settings:
                raise ValueError("other settings than its name says")
            return SessionsEvaluation.from_dict(record["evaluation"])
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(f"{path} is damaged ({error}): delete it to run {method.shown} again") from None

    def keep(self, sessions: Sessions, method: MethodConfig, seed: int, found: SessionsEvaluation) -> None:
        """Write it, whole or not at all."""
        if self.folder is None:
            return
        settings = _settings(sessions, method, seed)
        self.folder.mkdir(parents=True, exist_ok=True)
        with written_whole(self.folder / _file_name(settings)) as temporary:
            record = {"settings": settings, "evaluation": found.as_dict()}
            temporary.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def _settings(sessions: Sessions, method: MethodConfig, seed: int) -> dict[str, Any]:
    """Everything that determines the result, as JSON values; what a method is called in tables does not."""
    given = {
        "data": sessions.name,
        "rows": _digest(sessions),
        "method": method.name,
        "options": method.options,
        "seed": seed,
        "sureshot": version("sureshot"),
    }
    if isinstance(network := method.options.get("checkpoint"), str):
        path = Path(network) / BEST_NAME if Path(network).is_dir() else Path(network)
        if path.is_file():  # training that is repeated writes another network to the same place
            with path.open("rb") as stream:
                given["network"] = hashlib.file_digest(stream, "sha256").hexdigest()
    found: dict[str, Any] = json.loads(json.dumps(given, default=str))
    return found


def _digest(sessions: Sessions) -> str:
    """Of all rows, labels and sessions."""
    more = [part for part in (sessions.out_of_scope, sessions.unseen) if part is not None]
    parts = (sessions.train.x, sessions.train.y, sessions.test.x, sessions.test.y, *more)
    return digest(parts, repr(sessions.sessions))


def _file_name(settings: dict[str, Any]) -> str:
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()
    return f"{settings['method']}-seed{settings['seed']}-{digest[:12]}.json"
