"""What people said of a sample of a dataset stands on a suite's page."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from reported import pages_of
from test_baselines import by_form_alone
from upkeep.building.build import build_dataset
from upkeep.catalog import Catalog
from upkeep.grading.audited import RECORD, Marks
from upkeep.grading.scores import score_suite
from upkeep.layout import Layout
from upkeep.operations.audit.marks import take
from upkeep.operations.audit.sample import draw, hash_of
from upkeep.report import page


def test_beside_the_baselines_stands_what_people_said_while_it_is_of_this_build(tmp_path: Path) -> None:
    by_form_alone(tmp_path)
    (tmp_path / "config/suites").mkdir()
    (tmp_path / "config/suites/own.yaml").write_text(
        "{label: Own, summary: s, papers: [], cells: [{datasets: [news], methods: ['null'], models: [none]}]}"
    )
    catalog = Catalog(tmp_path, None, {"suite": "own"})
    folder = Layout(catalog.results).dataset("news")
    card = build_dataset(catalog, "news", folder)
    items = draw(folder, 4, 0)
    said = {item.probe_id: {"right": True, "natural": place > 0} for place, item in enumerate(items)}
    marks = Marks(dataset="news", sample=4, seed=0, probes=hash_of(items), marks=said)
    (tmp_path / "marks.json").write_bytes(msgspec.json.encode(marks))

    def shown() -> str:
        page.render(catalog, score_suite(catalog, "own"))
        return pages_of(tmp_path, "own")["checks.html"]

    assert "natural</th>" not in shown()
    take(folder, card, tmp_path / "marks.json")
    controls = shown()
    assert "right</th>" in controls and "answerable</th>" not in controls
    assert re.search(r'title="of 4 probes of 4 questions; [^"]+">100.0</td><td[^>]+>75.0</td></tr>', controls)
    (folder / RECORD).write_text((folder / RECORD).read_text().replace("true", "false"))
    controls = shown()
    assert "natural</th>" not in controls and "not the record that was written" in controls
