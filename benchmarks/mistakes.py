"""Makes mutants of small configs, lets T5X itself judge each of them, and compares the harness's answer.

usage: python benchmarks/mistakes.py --number 200 --seed 0 [--write docs/fidelity.md]

An unchanged case must pass, or nothing is judged. What T5X does with a mutant is kept in the folder of the campaign and
used again; the harness's answer is kept there too, until the folder ``harness`` is removed.
"""

import argparse
import itertools
import json
import random
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from campaign import table
from campaign.generators import mutants_of
from campaign.judging import Judgment
from campaign.mutant import CASES, Mutant
from campaign.running import Campaign
from reporting import write_table


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a campaign and prints its table; returns 1 if a mutant ended in a failure of the harness itself."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--number", type=int, default=200, help="how many mutants to judge (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="which ones (default: %(default)s)")
    parser.add_argument("--only", default="", help="words in the case, the kind and the text of a mutant")
    parser.add_argument("--folder", type=Path, help="where results are kept (default: a new folder, which is removed)")
    parser.add_argument("--at-once", type=int, default=2, help="mutants to judge at the same time (default: 2)")
    parser.add_argument("--write", type=Path, help="a page whose table is replaced")
    parser.add_argument("--list", action="store_true", help="list the mutants, and run nothing")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        if options.list:
            with Campaign(folder) as campaign:
                chosen = drawn(campaign, options.number, options.seed, options.only)
            print("\n".join(f"{m.case:9} {m.kind:28} {m.what}" for m in chosen))
            return 0
        judgments = judged(options.number, options.seed, options.only, folder, options.at_once)
    print(table.text(judgments))
    if options.write:
        write_table(options.write, "mistakes", table.text(judgments))
    for what, each in table.survivors(judgments):
        print(f"\n{what}: {each.mutant.case} | {each.mutant.kind} | {each.mutant.what}  [{each.mutant.key}]")
        print(f"  T5X: {each.verdict.ending} {each.verdict.text[:300]}")
        for said in each.said:
            print(f"  {said.code} {said.severity} {said.stage} {said.place}: {said.text[:300]}")
    return int(any(each.is_own_failure for each in judgments))


def drawn(campaign: Campaign, number: int, seed: int, only: str = "") -> list[Mutant]:
    """Draws mutants at random, the same number of each class as far as there are so many.

    Args:
      campaign: the campaign.
      number: how many.
      seed: which ones.
      only: words that their case, kind and text contain.
    """
    mutants = [m for m in mutants_of(CASES, campaign.parent) if only in f"{m.case} {m.kind} {m.what}"]
    classes: dict[str, list[Mutant]] = {}
    for mutant in random.Random(seed).sample(mutants, len(mutants)):
        classes.setdefault(mutant.group, []).append(mutant)
    rounds = itertools.zip_longest(*(classes[name] for name in sorted(classes)))
    chosen = [mutant for mutant in itertools.chain.from_iterable(rounds) if mutant is not None][:number]
    print(f"{len(mutants):,} mutants, of which {len(chosen)} are drawn", file=sys.stderr)
    return chosen


def judged(number: int, seed: int, only: str, folder: Path, at_once: int) -> list[Judgment]:
    """Judges mutants, and prints each when it is judged.

    Args:
      number: how many.
      seed: which ones.
      only: words that their case, kind and text contain.
      folder: where everything is kept.
      at_once: how many are judged at the same time.
    """
    judgments = []
    with Campaign(folder) as campaign, ThreadPoolExecutor(at_once) as threads:
        for judgment in threads.map(lambda mutant: _judged(campaign, mutant), drawn(campaign, number, seed, only)):
            judgments.append(judgment)
            print(f"{len(judgments):5} {judgment.mutant.kind} | {judgment.mutant.what}", file=sys.stderr)
    return judgments


def _judged(campaign: Campaign, mutant: Mutant) -> Judgment:
    known = campaign.folder / "harness" / f"{mutant.key}.json"
    if known.is_file():
        return Judgment.from_json(json.loads(known.read_text(encoding="utf-8")))
    judgment = Judgment.of(mutant, campaign.judge(mutant), campaign.run(mutant), campaign.usual(mutant.case))
    known.parent.mkdir(exist_ok=True)
    known.write_text(json.dumps(judgment.to_json()), encoding="utf-8")
    return judgment


if __name__ == "__main__":
    sys.exit(main())
