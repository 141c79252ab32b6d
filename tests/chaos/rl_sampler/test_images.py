"""A vision-language model between real stores, the real engine and the agent.

The agent has the engine sample prompts with images, and the trainer's own computation of what is
stored gives the engine's log-probabilities.
"""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.numpy import load_file

from rl_contracts.documents.arrays import unpack_float32
from rl_contracts.documents.task import ContentPart, ImagePart, Message
from rl_contracts.images.placeholders import Placeholders
from rl_contracts.stores.clients.settings import StoreSettings
from rl_contracts.stores.connect import Stores
from rl_contracts.stores.files.images import ImageStore
from rl_trainer.algorithm.packing import collate
from rl_trainer.algorithm.rollout_faults import fault
from rl_trainer.algorithm.samples import sequences
from rl_trainer.model import loading
from tests.contract.rl_sampler.engine_server import EngineServer
from tests.contract.rl_sampler.pods import new_process, pods_in, start_run
from tests.models.tiny_vision import IMAGE, VOCABULARY, picture, save_seeing
from tests.samples.documents import RUN
from tests.samples.manifests import a_job
from tests.waiting import until

SIDE, GAP = 28, 1e-4


def test_the_trainer_computes_what_the_engine_saw(
    tmp_path: Path, stores: Stores, store_settings: StoreSettings
) -> None:
    folder = save_seeing(tmp_path / "model")
    trainer = start_run(stores, folder)
    images = ImageStore(stores.objects, run_prefix=stores.run_prefix(RUN))
    parts = []
    for number, (height, width) in enumerate(((2, 3), (1, 2))):
        sha256 = images.put(picture(height * SIDE, width * SIDE, seed=number))
        parts.append(ImagePart(sha256=sha256, width=width * SIDE, height=height * SIDE))
    message = Message(role="user", content=(parts[0], ContentPart(text="12"), parts[1]))
    with (
        EngineServer.running(model=folder, folder=tmp_path) as engine,
        pods_in(tmp_path / "pods", engine_url=engine.url, launch=new_process) as new,
    ):
        data = a_job()["spec"]["data"] | {"images": {}}
        pod = new("pod-a", settings=store_settings, stores=stores, sections={"data": data})
        assert pod.stage().returncode == 0
        trainer.publish(weights=load_file(folder / "model.safetensors"))
        pod.serve()
        pod.wait_version(1)
        wanted = trainer.insert(3, messages=[message.model_dump()])
        until(lambda: trainer.all_done(wanted), what="the tasks to be done")
        rollouts = trainer.chosen(wanted)
    policy = loading.load(folder, precision="FP32", uri="s3://models/seeing", images=images)
    placeholders = Placeholders(token=IMAGE, side=SIDE)
    for rollout in rollouts:
        assert len(rollout.images) == 2
        problem = fault(rollout, vocabulary=VOCABULARY, max_tokens=64, placeholders=placeholders)
        assert not problem
        (sample,) = sequences(rollout)
        with torch.no_grad():
            own = policy.token_logprobs(collate([sample], (0,)), temperature=rollout.temperature)
        stored = torch.tensor(unpack_float32(rollout.logprobs))[sample.mask]
        assert float((own - stored).abs().max()) <= GAP
