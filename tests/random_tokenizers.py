"""Writes random tokenizers with the libraries of Hugging Face, and what they make of random texts.

    random_tokenizers.py FOLDER COUNT SEED

FOLDER/0, FOLDER/1, ... get the files of a tokenizer, and expected.json: the texts, their token ids, the id
that ends a text, and the word that a refusal must name ("" if the tokenizer must be accepted).
"""

import json
import os
import random
import sys

import transformers
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

SAMPLE = [
    "the cat sat on the mat, and the hat of the cat was 1234 years old\n",
    "I'll say: don't! we've foobar",
    "\u00e9t\u00e9 \u6f22\u5b57 \U0001f600 foo  bar\t\tbaz word words <|user|> </s>",
    "aaaa abab abcabc xyz" * 3,
]
ADDED = "<|user|>,<|user|>x,<|us,foo,foobar,\u00e9t,a b,\n\n, cat,word,[PAD],x ,\u6f22,12,_,the".split(",")
OTHERS = (
    " ,  ,\n,\u3000,\u00a0,\u2003,'s,7,Z,-,\u0301,\u180e,<|endoftext|>,</s>,<s>,\u200d,\u24b6,\x85,\t,<|,|>"
)
FRAGMENTS = ADDED + SAMPLE + OTHERS.split(",")
REFUSED = (
    "Lowercase Digits use_regex TemplateProcessing dropout ignore_merges Metaspace Whitespace NFKC WordLevel "
    "BertTokenizer"
).split()


def random_flags(rng, content):
    return AddedToken(
        content,
        single_word=rng.random() < 0.3,
        lstrip=rng.random() < 0.3,
        rstrip=rng.random() < 0.3,
        normalized=rng.random() < 0.5,
        special=rng.random() < 0.5,
    )


def trained(rng, specials):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=rng.choice([256, 280, 330, 400]),
        special_tokens=specials,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([rng.choice(SAMPLE) for _ in range(20)], trainer)
    return tokenizer


def spoil(folder, what):
    path = folder + "/tokenizer.json"
    whole = json.load(open(path, encoding="utf-8"))
    config_path = folder + "/tokenizer_config.json"
    config = json.load(open(config_path, encoding="utf-8"))
    byte_level = whole["pre_tokenizer"]
    if what in ("Lowercase", "NFKC"):
        whole["normalizer"] = {"type": what}
    elif what == "Digits":
        whole["pre_tokenizer"] = {
            "type": "Sequence",
            "pretokenizers": [{"type": "Digits", "individual_digits": True}, byte_level],
        }
    elif what in ("Metaspace", "Whitespace"):
        whole["pre_tokenizer"] = {"type": what}
    elif what == "use_regex":
        byte_level["use_regex"] = False
    elif what == "TemplateProcessing":
        whole["post_processor"] = {
            "type": what,
            "single": [
                {"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}},
                {"Sequence": {"id": "A", "type_id": 0}},
            ],
            "pair": [],
            "special_tokens": {},
        }
    elif what == "dropout":
        whole["model"]["dropout"] = 0.1
    elif what == "ignore_merges":
        whole["model"]["ignore_merges"] = True
    elif what == "WordLevel":
        whole["model"]["type"] = what
    else:
        config["tokenizer_class"] = what
    json.dump(whole, open(path, "w", encoding="utf-8"))
    json.dump(config, open(config_path, "w", encoding="utf-8"))


def write_json_form(rng, folder):
    """tokenizer.json and tokenizer_config.json, as save_pretrained() writes them."""
    end = rng.choice(["<|endoftext|>", "</s>"])
    specials = rng.choice([[end], ["<s>", "<pad>", end, "<unk>"]])
    prefix = rng.random() < 0.3
    tokenizer = trained(rng, specials if rng.random() < 0.7 else [])
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix)
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=rng.random() < 0.5)
    named = {"eos_token": end}
    if rng.random() < 0.5:
        named["pad_token"] = rng.choice(["[PAD]", end])
    if rng.random() < 0.3:
        named["additional_special_tokens"] = ["<|user|>", "<|bot|>"]
    if rng.random() < 0.5:
        named.update(bos_token=rng.choice([end, "<s>"]), unk_token=end)
    tokens = [random_flags(rng, text) for text in rng.sample(ADDED, rng.randrange(4))]
    if rng.random() < 0.5:
        tokenizer.add_tokens(tokens)
        tokens = []
    wrapped = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, add_prefix_space=prefix, **named
    )
    wrapped.add_tokens(tokens)
    wrapped.save_pretrained(folder)
    if rng.random() < 0.4:
        path = folder + "/tokenizer_config.json"
        config = json.load(open(path, encoding="utf-8"))
        config["tokenizer_class"] = rng.choice(["GPT2Tokenizer", "GPT2TokenizerFast"])
        json.dump(config, open(path, "w", encoding="utf-8"))
    if rng.random() < 0.3:
        transformers.AutoTokenizer.from_pretrained(folder).save_pretrained(folder)


def write_text_form(rng, folder):
    """vocab.json and merges.txt, as older programs write them."""
    at_start = rng.random() < 0.5
    tokenizer = trained(
        rng, rng.choice([["<|endoftext|>"], ["<s>", "<|endoftext|>", "<pad>"]]) if at_start else []
    )
    tokenizer.model.save(folder)
    if not at_start and rng.random() < 0.7:
        ids = json.load(open(folder + "/vocab.json", encoding="utf-8"))
        ids["<|endoftext|>"] = len(ids)
        json.dump(ids, open(folder + "/vocab.json", "w", encoding="utf-8"))
    size = len(json.load(open(folder + "/vocab.json", encoding="utf-8")))
    merges = open(folder + "/merges.txt", encoding="utf-8").read()
    if rng.random() < 0.3:
        merges = merges[merges.index("\n") + 1 :]
    if rng.random() < 0.3:
        merges = merges.replace("\n", "\r\n")
    with open(folder + "/merges.txt", "w", encoding="utf-8", newline="") as file:
        file.write(merges)
    json.dump({"model_type": "gpt2"}, open(folder + "/config.json", "w"))
    has_end = "<|endoftext|>" in json.load(open(folder + "/vocab.json", encoding="utf-8"))
    if rng.random() < 0.5:
        added = rng.sample(ADDED[1:], 2)  # versions differ about <|user|>x if <|user|> is special
        added = [
            text for text in added if text not in json.load(open(folder + "/vocab.json", encoding="utf-8"))
        ]
        if not has_end:
            added.append("<|endoftext|>")
        json.dump({text: size + i for i, text in enumerate(added)}, open(folder + "/added_tokens.json", "w"))
        if rng.random() < 0.5:
            json.dump(
                {"additional_special_tokens": added[:1]}, open(folder + "/special_tokens_map.json", "w")
            )
    config = {"tokenizer_class": "GPT2Tokenizer"}
    if rng.random() < 0.5:
        config["add_prefix_space"] = rng.random() < 0.5
    if rng.random() < 0.5:
        json.dump(config, open(folder + "/tokenizer_config.json", "w"))


def random_text(rng):
    return "".join(rng.choice(FRAGMENTS) for _ in range(rng.randrange(12)))


def write_tokenizer(rng, folder):
    os.makedirs(folder)
    refused = ""
    if rng.random() < 0.3:
        write_text_form(rng, folder)
    else:
        write_json_form(rng, folder)
        refused = rng.choice(REFUSED) if rng.random() < 0.25 else ""
    expected = {"refused": refused, "texts": [], "ids": [], "end_of_text": -1}
    if refused:
        spoil(folder, refused)
    else:
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        expected["texts"] = [random_text(rng) for _ in range(30)]
        expected["ids"] = [tokenizer.encode(text) for text in expected["texts"]]
        expected["end_of_text"] = tokenizer.eos_token_id
    json.dump(expected, open(folder + "/expected.json", "w"))


if __name__ == "__main__":
    for number in range(int(sys.argv[2])):
        write_tokenizer(random.Random(int(sys.argv[3]) * 1000 + number), f"{sys.argv[1]}/{number}")
