"""Generate text with a decoder whose caches a session keeps, and a tokenizer of the package ``tokenizers``.

    python examples/generate.py [PROMPT] [--model decoder.onnx --tokenizer tokenizer.json] [--tokens 32] [--temperature 0.8]

MODEL is an ONNX model with past inputs and present outputs, or IR with states. Without one, a small Llama with random weights and
a tokenizer trained on this repository's documents show the loop and its speed; their text has no meaning.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import transformers

import dovetail

DOCUMENTS = Path(__file__).resolve().parent.parent / "docs"
VOCABULARY = 512


def train_tokenizer(folder: Path = DOCUMENTS, vocabulary: int = VOCABULARY) -> Any:
    """Return a byte-level BPE tokenizer, trained on the Markdown files of ``folder``: it encodes any text."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=vocabulary, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train([str(path) for path in sorted(folder.rglob("*.md"))], trainer)
    return tokenizer


class Decoder:
    """A session of a decoder, which takes new tokens and returns the scores of the next one.

    Of the inputs that decoders have besides ``input_ids``, it passes those of the model: the mask of all tokens, the positions of
    the new ones, the rows of the states (``beam_idx``), and the lengths of a GroupQueryAttention.
    """

    def __init__(self, model: dovetail.Model, threads: int | None = None) -> None:
        self.program = dovetail.compile(model, threads=threads, reuse_caches=True)
        self.session = self.program.session()
        self.names = {value.name for value in model.inputs} - self.session.state_outputs.keys()
        self.length = 0

    def reset(self) -> None:
        """Forget all tokens."""
        self.session.reset()
        self.length = 0

    def __call__(self, ids: Sequence[int]) -> Any:
        first, self.length = self.length, self.length + len(ids)
        known = {
            "input_ids": np.array([ids]),
            "attention_mask": np.ones((1, self.length), np.int64),
            "position_ids": np.arange(first, self.length)[None],
            "beam_idx": np.zeros(1, np.int32),
            "seqlens_k": np.array([self.length - 1], np.int32),
            "total_sequence_length": np.array(self.length, np.int32),
        }
        if unknown := self.names - known.keys():
            raise SystemExit(f"the model has inputs that this example does not know: {', '.join(sorted(unknown))}")
        return self.session({name: known[name] for name in self.names})["logits"][0, -1]


def generate(decoder: Decoder, prompt: Sequence[int], count: int, temperature: float = 0.0, seed: int = 0) -> Iterator[int]:
    """Yield ``count`` tokens after ``prompt``: the likeliest ones for the temperature 0, else drawn by their probabilities."""
    chance = np.random.default_rng(seed)
    ids = prompt
    for _ in range(count):
        scores = decoder(ids).astype(np.float64)
        if temperature > 0:
            # The largest of scores with Gumbel noise is a sample of their softmax.
            scores = scores / temperature + chance.gumbel(size=scores.shape)
        ids = [int(np.argmax(scores))]
        yield ids[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prompt", nargs="?", default="A session keeps the caches")
    parser.add_argument("--model", help="a decoder (.onnx or .xml)")
    parser.add_argument("--tokenizer", help="the tokenizer.json of the model")
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--temperature", type=float, default=0.8)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if (options.model is None) != (options.tokenizer is None):
        parser.error("--model and --tokenizer need each other")
    if options.model is None:
        tokenizer = train_tokenizer()
        model = transformers.llama(4, 256, 8, 2, 512, VOCABULARY, attention="Attention")
    else:
        from tokenizers import Tokenizer

        tokenizer, model = Tokenizer.from_file(options.tokenizer), dovetail.load(options.model)
    decoder = Decoder(model, options.threads)
    print(decoder.session, file=sys.stderr)
    prompt = tokenizer.encode(options.prompt).ids
    start = perf_counter()
    found = list(generate(decoder, prompt, options.tokens, options.temperature, options.seed))
    seconds = perf_counter() - start
    print(options.prompt + tokenizer.decode(found))
    statistics = decoder.program.statistics
    rate, copied = len(found) / seconds, statistics.copied_cache_bytes
    print(f"{rate:.1f} tokens/s, {statistics.plans} plans, {copied} bytes of caches copied", file=sys.stderr)


if __name__ == "__main__":
    main()
