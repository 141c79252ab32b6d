"""Makes the example's model: a tiny Qwen2.5-VL that often presses the wrong button.

It has learned to act, and to see, from the episodes of a careless user, who presses the right
button in six of ten and another place in the others. It clicks as that user does; reinforcement
learning has to make it careful. Screens are drawn here, so that neither a browser nor a server is
needed.

    python examples/gui/make_model.py --out DIR
"""

import argparse
import json
import random
from pathlib import Path
from typing import Any

import torch
from PIL import Image, ImageDraw
from tokens import CLICK, CLOSE, COMMA, DONE, END, IMAGE, OPEN, PAD, tokenizer
from transformers import AutoConfig, AutoModelForImageTextToText
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

SIDE, PLACE, SQUARE = 112, 56, 28
"""Pixels of the screen, of a place on it, and of what a token stands for."""
COLOURS = {"red": "#d02020", "green": "#20a020", "blue": "#2040d0"}
FIRST_PAGE, LAST_PAGE = 100, 999
PLACES, RIGHT = 4, "green"
STEPS, BATCH, RATE, SEED = 1500, 32, 1e-3, 7
CARE = 0.6
"""How often the user presses the right button. From one who presses anywhere, right in a quarter,
the model does not learn to see."""
IGNORED = -100
TEXT: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "bos_token_id": None,
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 10000.0,
        "mrope_section": [4, 2, 2],
    },
}
VISION: dict[str, Any] = {
    "depth": 2,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_heads": 4,
    "out_hidden_size": 64,
    "patch_size": SQUARE // 2,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
    "window_size": SIDE,
    "fullatt_block_indexes": [1],
}


def question(page: int) -> str:
    """What the user asks; the data of `make_data.py` have the same form."""
    return f"page {page}: press {RIGHT}"


def screen(draw: random.Random) -> tuple[Image.Image, dict[int, str]]:
    """A screen as `page.html` shows it, three buttons in four places; and which is where."""
    image = Image.new("RGB", (SIDE, SIDE), "#fff")
    buttons = dict(zip(draw.sample(range(PLACES), len(COLOURS)), COLOURS, strict=True))
    for place, name in buttons.items():
        left, top = PLACE * (place % 2), PLACE * (place // 2)
        box = (left, top, left + PLACE - 1, top + PLACE - 1)
        ImageDraw.Draw(image).rectangle(box, fill=COLOURS[name])
    return image, buttons


def processor() -> Qwen2VLImageProcessorPil:
    """The image processor, for screens of this size."""
    return Qwen2VLImageProcessorPil(
        patch_size=SQUARE // 2,
        size={"shortest_edge": SQUARE**2, "longest_edge": 64 * SQUARE**2},
    )


class Episodes:
    """Episodes of the careless user as tokens."""

    def __init__(self, words: Any) -> None:
        self.words, self.processor = words, processor()
        self.draw = random.Random(SEED)
        self.image = words.convert_tokens_to_ids(IMAGE)
        self.end = words.convert_tokens_to_ids(END)

    def messages(self) -> tuple[list[dict[str, Any]], list[Image.Image]]:
        """A conversation, and the screens that it shows."""
        page = self.draw.randint(FIRST_PAGE, LAST_PAGE)
        shown, buttons = screen(self.draw)
        place = self.place(buttons)
        x, y = self.point(place)
        pressed = buttons.get(place)
        return [
            {"role": "user", "content": question(page)},
            {"role": "assistant", "content": f"{OPEN}{page}{CLOSE}"},
            {"role": "tool", "content": _result({})},
            {"role": "assistant", "content": f"{CLICK}{x}{COMMA}{y}{CLOSE}"},
            {"role": "tool", "content": _result({"pressed": pressed} if pressed else {})},
            {"role": "assistant", "content": DONE},
        ], [shown, shown]

    def place(self, buttons: dict[int, str]) -> int:
        """Where the user presses."""
        others = [place for place in range(PLACES) if buttons.get(place) != RIGHT]
        (right,) = set(range(PLACES)) - set(others)
        return right if self.draw.random() < CARE else self.draw.choice(others)

    def point(self, place: int) -> tuple[int, int]:
        """A point in a place, in two digits each."""
        near, far = (10, PLACE - 1), (PLACE, 99)
        x, y = far if place % 2 else near, far if place // 2 else near
        return self.draw.randint(*x), self.draw.randint(*y)

    def tokens(self, messages: list[dict[str, Any]]) -> tuple[list[int], list[bool]]:
        """Token ids, and which of them the policy writes."""
        ids: list[int] = []
        own: list[bool] = []
        for message in messages:
            text = self.words.apply_chat_template([message], tokenize=False)
            head = f"<|{message['role']}|>"
            for piece, generated in (
                (head, False),
                (text.removeprefix(head), message["role"] == "assistant"),
            ):
                made = self.words.encode(piece, add_special_tokens=False)
                for token in made:
                    count = (SIDE // SQUARE) ** 2 if token == self.image else 1
                    ids += [token] * count
                    own += [generated] * count
        return ids, own

    def batch(self, size: int) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
        """What the model is given, and labels; padded on the right."""
        rows, pictures = [], []
        for _ in range(size):
            messages, shown = self.messages()
            rows.append(self.tokens(messages))
            pictures += shown
        width = max(len(ids) for ids, _ in rows)
        ids = torch.full((size, width), self.words.pad_token_id)
        labels = torch.full((size, width), IGNORED)
        for at, (tokens, own) in enumerate(rows):
            ids[at, : len(tokens)] = torch.tensor(tokens)
            chosen = [token if mine else IGNORED for token, mine in zip(tokens, own, strict=True)]
            labels[at, : len(tokens)] = torch.tensor(chosen)
        given = self.processor(pictures, return_tensors="pt")
        return {
            "input_ids": ids,
            "attention_mask": (ids != self.words.pad_token_id).long(),
            "mm_token_type_ids": (ids == self.image).int(),
            "pixel_values": given["pixel_values"],
            "image_grid_thw": given["image_grid_thw"],
        }, labels


def _result(state: dict[str, str]) -> list[dict[str, str]]:
    return [{"type": "text", "text": json.dumps(state)}, {"type": "image"}]


def new_model(words: Any) -> Any:
    """The model with random weights."""
    named = {
        "image_token_id": IMAGE,
        "video_token_id": "<|video_pad|>",
        "vision_start_token_id": "<|vision_start|>",
        "vision_end_token_id": "<|vision_end|>",
    }
    ids = {name: words.convert_tokens_to_ids(text) for name, text in named.items()}
    ends = {
        "vocab_size": len(words),
        "eos_token_id": words.convert_tokens_to_ids(END),
        "pad_token_id": words.convert_tokens_to_ids(PAD),
    }
    config = AutoConfig.for_model(
        "qwen2_5_vl",
        text_config=TEXT | ends,
        vision_config=VISION,
        tie_word_embeddings=False,
        **ids,
    )
    torch.manual_seed(SEED)
    return AutoModelForImageTextToText.from_config(config, dtype=torch.float32)


def warm_up(model: Any, episodes: Episodes, steps: int = STEPS) -> None:
    """Train the model on the user's episodes, in place."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = RATE * min(1.0, (step + 1) / 50) * (1 - step / steps)
        given, labels = episodes.batch(BATCH)
        logits = model(**given, use_cache=False).logits[:, :-1]
        loss = torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), labels[:, 1:].flatten(), ignore_index=IGNORED
        )
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if (step + 1) % 50 == 0:
            print(f"step {step + 1}/{steps}, loss {loss.item():.3f}", flush=True)


def make(folder: Path, steps: int = STEPS) -> None:
    """Write the model in Hugging Face layout."""
    torch.set_num_threads(1)
    words = tokenizer()
    model = new_model(words)
    warm_up(model, Episodes(words), steps)
    model.save_pretrained(folder)
    words.save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(processor().to_json_string())


def main() -> None:
    """Write the model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder for the model's files")
    folder = parser.parse_args().out
    folder.mkdir(parents=True, exist_ok=True)
    make(folder)


if __name__ == "__main__":
    main()
