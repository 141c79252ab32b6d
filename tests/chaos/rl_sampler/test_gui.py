"""The GUI example as a whole: a real Chromium, engine, agent and trainer, and the example's model.

A model that presses the wrong button in four episodes of ten acts in the browser, is shown its
screens as image tokens, is rewarded for the page's state, and learns to press the right one.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import yaml

from rl_contracts.documents.rollout import Rollout
from rl_contracts.spec.resources import RLJobSpec
from rl_contracts.stores.clients.settings import StoreSettings
from rl_contracts.stores.connect import Stores
from rl_contracts.stores.files.images import ImageStore
from rl_operator.render.samplers.engine import NO_EMBEDDINGS
from tests.contract.rl_sampler.engine_server import EngineServer
from tests.contract.rl_sampler.pods import new_process, pods_in
from tests.contract.rl_sampler.tools import gui_server
from tests.contract.rl_sampler.tools.test_gui import PAGE, act, episodes
from tests.contract.rl_trainer.world import RUN, World
from tests.servers import ROOT
from tests.waiting import until

STEPS, PROMPTS, GAP, HELD_OUT = 24, 8, 1e-4, 32
LEAST_RISE, ENDS = 0.2, 3
"""Of the mean reward, from the first steps to as many last ones."""
WITHOUT_CACHE = ("env", *(f"{name}={value}" for name, value in NO_EMBEDDINGS.items()))
"""As the operator starts an engine whose vision tower is trained."""
WHOLE_SECONDS = 3600.0
"""1,536 episodes of three actions of a browser, each about 0.2 s of a core, and some minutes for
the model itself."""
SECTIONS = ("model", "data", "agent", "code", "reward", "algorithm", "training")


def made(script: str, out: Path) -> Path:
    """What a script of the example writes."""
    command = [sys.executable, str(gui_server.EXAMPLE / script), "--out", str(out)]
    subprocess.run(command, check=True, cwd=gui_server.EXAMPLE)
    return out


def sections(world: World, url: str) -> dict[str, Any]:
    """The example's manifest for what is in the test's bucket, in fewer and smaller steps."""
    objects = world.stores.objects
    root = f"s3://{objects.bucket}/{objects.prefix}"
    spec = yaml.safe_load((ROOT / "examples" / "gui.yaml").read_text())["spec"]
    spec["model"]["uri"] = f"{root}gui-model"
    for split in ("train", "validation"):
        (source,) = spec["data"][split]
        source["uri"] = f"{root}{source['uri'].rpartition('/')[2]}"
    spec["agent"]["mcpServers"][0]["url"] = url
    spec["agent"]["mcpServers"][0]["timeoutSeconds"] = 120
    spec["training"] |= {"steps": STEPS, "promptsPerStep": PROMPTS}
    spec["training"]["evaluation"] = {"beforeTraining": True, "afterTraining": True}
    return {name: spec[name] for name in SECTIONS}


def a_world(folder: Path, stores: Stores, settings: StoreSettings, url: str) -> tuple[World, Path]:
    """The run, with its model and data in the bucket; and the folder of the model."""
    world, objects = World.make(folder, stores, settings), stores.objects
    model = made("make_model.py", folder / "gui-model")
    for path in model.iterdir():
        objects.put_file(f"{objects.prefix}gui-model/{path.name}", path)
    for path in made("make_data.py", folder / "data").iterdir():
        objects.put_file(f"{objects.prefix}{path.name}", path)
    given = world.spec.model_dump(mode="json", by_alias=True, exclude_unset=True)
    world.spec = RLJobSpec.model_validate({**given, **sections(world, url)})
    world.write_mounts()
    return world, model


def check_images(rollout: Rollout, images: ImageStore) -> None:
    """What the tools returned before the last turn is what the policy was shown; all is stored."""
    *before, last = [
        [image.sha256 for call in turn.calls for image in call.images] for turn in rollout.turns
    ]
    shown = [sha256 for turn in before for sha256 in turn]
    assert [image.sha256 for image in rollout.images] == shown
    assert all(images.get(sha256) for sha256 in (*shown, *last))


@pytest.mark.timeout(2 * WHOLE_SECONDS)
def test_a_policy_that_acts_in_a_browser_learns_from_what_it_sees(
    tmp_path: Path,
    stores: Stores,
    store_settings: StoreSettings,
    record_property: Callable[[str, object], None],
) -> None:
    with gui_server.running(tmp_path / "browser.log") as url:
        world, model = a_world(tmp_path, stores, store_settings, url)
        given = world.spec.model_dump(mode="json", by_alias=True, exclude_unset=True)
        trainer = world.process()

        def published() -> bool:
            run = stores.runs.get(RUN)
            return run is not None and run.policy is not None

        with (
            EngineServer.running(model=model, folder=tmp_path, before=WITHOUT_CACHE) as engine,
            pods_in(tmp_path / "pods", engine_url=engine.url, launch=new_process) as new,
        ):
            pod = new("pod-a", settings=store_settings, stores=stores, sections=given, run=RUN)
            pod.modules.append(gui_server.EXAMPLE)
            until(published, what="the first policy", seconds=WHOLE_SECONDS)
            assert pod.stage().returncode == 0
            pod.serve()
            until(
                lambda: trainer.poll() is not None,
                what="the trainer to end",
                seconds=WHOLE_SECONDS,
                seen=lambda: pod.log()[-3000:],
            )
    assert trainer.returncode == 0, (tmp_path / "trainer.log").read_text()[-3000:]

    images = ImageStore(stores.objects, run_prefix=stores.run_prefix(RUN))
    trained = world.trained()
    assert len(trained) == STEPS
    rewards = [fmean(rollout.reward for rollout in rollouts) for rollouts in trained]
    record_property("reward of each step", [round(reward, 3) for reward in rewards])
    before, after = world.evaluations
    record_property("accuracy on pages held out", f"{before.accuracy} → {after.accuracy}")
    acted = [rollout for rollouts in trained for rollout in rollouts if len(rollout.turns) > 1]
    assert acted, "the model knows how to call"
    for rollout in acted:
        check_images(rollout, images)
    for result in (before, after):
        assert result.prompts == HELD_OUT
        assert result.logprob_gap_max <= GAP, "engine and trainer saw the same screens"
    assert fmean(rewards[-ENDS:]) - fmean(rewards[:ENDS]) >= LEAST_RISE, (
        rewards,
        before.accuracy,
        after.accuracy,
    )


async def test_the_screen_of_a_killed_sampler_is_closed(tmp_path: Path, stores: Stores) -> None:
    log = tmp_path / "browser.log"
    with gui_server.running(log, "--idle-seconds", "2") as url:
        async with episodes(url, stores, tmp_path) as offered:
            mine = offered.of_episode()
            assert (await act(mine, "open", page=PAGE)).outcome == "answered"
            # Nothing ends the session, as where its sampler was killed.
            await asyncio.to_thread(
                until, lambda: "closed the screen" in log.read_text(), what="the screen's end"
            )
            after = await act(mine, "screenshot")
            assert (after.outcome, "call open first" in after.result) == ("failed", True)
            await mine.close()
