"""The tables that the program prints stand in the documents, and the one of settings is readable for every value."""

import json
import re
import tomllib
from pathlib import Path

import pytest

from tests.generated import ADVICE, TABLES, build_page
from thinklsp.settings.admin_file import BudgetsSection
from thinklsp.settings.sources import load_user_settings

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("page", TABLES)
def test_generated_tables_are_up_to_date(page):
    assert (ROOT / page).read_text("utf-8") == build_page(page), ADVICE


def test_documented_examples_are_accepted(inside, tmp_path):
    properties = json.loads(inside("config", "file").stdout)["properties"]
    pages = [page.read_text() for page in sorted((ROOT / "docs").glob("*.md"))]
    own = [text for page in pages for text in re.findall(r"```toml\n(.*?)```", page, re.DOTALL)]
    # Budgets are in the administrator's file only.
    budgets = [text for text in own if text.startswith("[budgets]")]
    own = [text for text in own if text not in budgets]
    assert (len(own), len(budgets)) == (14, 1)
    for text in budgets:
        assert BudgetsSection.model_validate(tomllib.loads(text)["budgets"]).teams
    config = tmp_path / "config.toml"
    for text in (*own, '"actions.disabled" = ["fix"]', '[actions]\ndisabled = ["fix"]'):
        config.write_text(text)
        assert load_user_settings({"THINKLSP_CONFIG": str(config)}).problems == ()
        assert tomllib.loads(text).keys() <= properties.keys()
