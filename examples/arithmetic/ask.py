"""Asks a model in Hugging Face layout, token by most likely token; prints one JSON line each."""

import argparse
import json
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

MAX_NEW_TOKENS = 16


def main() -> None:
    """Command line: `python examples/arithmetic/ask.py --model DIR '17+25=' …`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, required=True, help="folder of the model")
    parser.add_argument("queries", nargs="+", help="one prompt each")
    arguments = parser.parse_args()
    tokenizer = AutoTokenizer.from_pretrained(arguments.model)
    model = AutoModelForCausalLM.from_pretrained(arguments.model, dtype=torch.float32)
    for query in arguments.queries:
        prompt = tokenizer.apply_chat_template(
            [{"role": "user", "content": query}],
            add_generation_prompt=True,
            return_dict=True,
            return_tensors="pt",
        )
        output = model.generate(**prompt, do_sample=False, max_new_tokens=MAX_NEW_TOKENS)
        generated = output[0, prompt["input_ids"].shape[1] :]
        response = tokenizer.decode(generated, skip_special_tokens=True)
        print(json.dumps({"query": query, "response": response}))


if __name__ == "__main__":
    main()
