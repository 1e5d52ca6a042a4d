#!/usr/bin/env python3
"""Text to a token file with any Hugging Face tokenizer.json, and token ids back to text.

  pip install tokenizers
  scripts/tokenize.py --tokenizer tokenizer.json train.txt.xz --out train.bin
  scripts/tokenize.py --tokenizer tokenizer.json text.txt --out train.bin --val val.bin
  quartet2 generate ... | scripts/tokenize.py --tokenizer tokenizer.json --decode

A line that is exactly <|endoftext|> ends a document; the tokenizer's end-of-text id, if it has one, follows
each document. Ids up to 65535 give a file of uint16, others of uint32 (data/README.md describes them)."""

import argparse
import array
import contextlib
import lzma
import os
import re
import sys

SEPARATOR = "<|endoftext|>"
END_OF_TEXT = [SEPARATOR, "<|end_of_text|>", "</s>", "<eos>"]
PIECE = 1 << 20  # characters; longer documents are encoded in pieces cut at line ends, so memory stays small
BATCH = 8 << 20  # characters handed to the tokenizer's threads at once
HEADERS = {2: (20240520, 1), 4: (20240801, 7)}  # magic and version of llm.c, by bytes a token


def load_tokenizer(path):
    try:
        from tokenizers import Tokenizer
    except ImportError:
        sys.exit("tokenize.py: the package tokenizers is missing; run: pip install tokenizers")
    try:
        tokenizer = Tokenizer.from_file(path)
    except Exception as error:  # the library raises bare Exceptions
        sys.exit(f"tokenize.py: {path}: not a tokenizer.json: {error}")
    tokenizer.no_truncation()  # a file may ask for both, and documents would lose their ends
    tokenizer.no_padding()
    return tokenizer


def pieces(path):
    """Yields (text, whether a document ends with it)."""
    lines, size = [], 0
    opener = lzma.open if path.endswith(".xz") else open
    with opener(path, "rt", encoding="utf-8", newline="") as file:
        for line in file:
            if line.rstrip("\r\n") == SEPARATOR:
                if lines:
                    yield "".join(lines).removesuffix("\n"), True
                lines, size = [], 0
                continue
            if size > PIECE:
                yield "".join(lines), False
                lines, size = [], 0
            lines.append(line)
            size += len(line)
    if lines:
        yield "".join(lines).removesuffix("\n"), True


def batches(paths):
    batch, size = [], 0
    for path in paths:
        try:
            for piece in pieces(path):
                batch.append(piece)
                size += len(piece[0])
                if size > BATCH:
                    yield batch
                    batch, size = [], 0
        except (UnicodeDecodeError, lzma.LZMAError, EOFError) as error:
            sys.exit(f"tokenize.py: {path}: {error}")
    if batch:
        yield batch


@contextlib.contextmanager
def atomic(path):
    """A binary file that is at `path` whole, or not at all."""
    beside = path + ".tmp"
    try:
        with open(beside, "w+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(beside)


def write_header(file, width, tokens):
    header = array.array("I", [*HEADERS[width], tokens % 2**32] + [0] * 253)
    file.seek(0)
    file.write(header.tobytes())


def move_tail(file, val_path, width, first, tokens):
    """Tokens first .. tokens-1 of `file` become the file `val_path`."""
    with atomic(val_path) as val:
        write_header(val, width, tokens - first)
        file.seek(1024 + first * width)
        while chunk := file.read(1 << 24):
            val.write(chunk)
    file.truncate(1024 + first * width)


def encode(args):
    tokenizer = load_tokenizer(args.tokenizer)
    vocab = tokenizer.get_vocab()
    width = 2 if max(vocab.values()) < 65536 else 4
    end = next((vocab[name] for name in END_OF_TEXT if name in vocab), None)
    # The fast one leaves out the offsets; older versions do not have it.
    encode_batch = getattr(tokenizer, "encode_batch_fast", tokenizer.encode_batch)
    tokens, starts = 0, [0]
    with atomic(args.out) as out:
        write_header(out, width, 0)
        for batch in batches(args.text):
            encodings = encode_batch([text for text, _ in batch], add_special_tokens=False)
            for (_, ends_document), encoding in zip(batch, encodings):
                ids = encoding.ids + ([end] if ends_document and end is not None else [])
                out.write(array.array("H" if width == 2 else "I", ids).tobytes())
                tokens += len(ids)
                if ends_document:
                    starts.append(tokens)
            print(f"\r{tokens:,} tokens", end="", file=sys.stderr, flush=True)
        print(file=sys.stderr)
        if tokens == 0:
            sys.exit(f"tokenize.py: {args.text[0]}: no text")
        if args.val:
            cut = next(start for start in starts if start >= tokens * (1 - args.val_fraction))
            if cut in (0, tokens):  # too few documents to cut between two of them
                cut = int(tokens * (1 - args.val_fraction))
            move_tail(out, args.val, width, cut, tokens)
            print(f"{args.val}: {tokens - cut} tokens of uint{8 * width}")
            tokens = cut
        write_header(out, width, tokens)
    print(f"{args.out}: {tokens} tokens of uint{8 * width}, vocabulary {max(vocab.values()) + 1}, "
          f"end of text {end}")


def decode(args):
    text = " ".join(args.text) if args.text else sys.stdin.read()
    ids = [int(number) for number in re.findall(r"\d+", text)]
    tokenizer = load_tokenizer(args.tokenizer)
    for number in ids:
        if number > 0xFFFFFFFF or tokenizer.id_to_token(number) is None:
            sys.exit(f"tokenize.py: {args.tokenizer} has no token {number}")
    print(tokenizer.decode(ids, skip_special_tokens=False))


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", nargs="*",
                        help="text files in UTF-8, also .xz; with --decode: ids (default: stdin)")
    parser.add_argument("--tokenizer", required=True, help="tokenizer.json")
    parser.add_argument("--out", help="token file to write")
    parser.add_argument("--val", help="token file for the last documents, for validation")
    parser.add_argument("--val-fraction", type=float, default=0.1,
                        help="their share of the tokens (default 0.1)")
    parser.add_argument("--decode", action="store_true", help="print the text of token ids")
    args = parser.parse_args()
    if args.decode:
        return decode(args)
    if not args.text or not args.out:
        parser.error("give text files and --out")
    if not 0 < args.val_fraction < 1:
        parser.error("--val-fraction is between 0 and 1")
    try:
        encode(args)
    except OSError as error:
        sys.exit(f"tokenize.py: {error}")


if __name__ == "__main__":
    main()
