#!/usr/bin/env python3
"""Writes generated facts and sums as questions and answers: OUT_train.jsonl and OUT_test.jsonl.

    dev/make_questions.py OUT

A fact says what a person likes or where they live; training has each in two wordings, the test asks in a
third one. A sum is of two numbers below 20; those of the test are not in training."""
import json
import random
import sys

draw = random.Random(1)
names = [a + b for a in ("Al", "Ber", "Ca", "Do", "El", "Fa") for b in ("an", "ra", "mo", "tin", "lia", "da")]
facts = {"like": ("apples", "chess", "tea", "rain", "music", "cats", "snow", "maps"),
         "live in": ("Oslo", "Rome", "Lima", "Cairo", "Paris", "Quito", "Delhi", "Seoul")}
wordings = {"like": ("What does {} like?", "Tell me what {} likes.", "{} likes what?"),
            "live in": ("Where does {} live?", "Tell me where {} lives.", "{} lives where?")}
train, test = [], []
for name in names:
    for kind, values in facts.items():
        answer = draw.choice(values)
        questions = [(wording.format(name), answer) for wording in wordings[kind]]
        test.append(questions.pop(draw.randrange(3)))
        train += questions * 4
sums = [(f"What is {a} plus {b}?", str(a + b)) for a in range(20) for b in range(20)]
draw.shuffle(sums)
test += sums[:60]
train += sums[60:] * 3
draw.shuffle(train)
for part, examples in (("train", train), ("test", test)):
    with open(f"{sys.argv[1]}_{part}.jsonl", "w", encoding="utf-8") as file:
        for question, answer in examples:
            print(json.dumps({"prompt": question, "completion": answer}), file=file)
