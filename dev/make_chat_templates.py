#!/usr/bin/env python3
"""Prints chat templates and what Jinja, set up as transformers does it, makes of conversations, for
chat_template_test. It makes tests/reference/chat_templates.json."""
import json

from jinja2.sandbox import ImmutableSandboxedEnvironment

S, U, A, V, B = ({"role": r, "content": c} for r, c in (
    ("system", "Be brief."), ("user", " Who's \"there\"?\n"), ("assistant", "It is\nme."), ("user", "Why?"),
    ("assistant", "  So.\n\n")))
TEMPLATES = {
    "ChatML": "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + "
              "'<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}"
              "{% endif %}",
    "GPT-2": "{% for message in messages %}{{ message.content }}{{ eos_token }}{% endfor %}",
    "Zephyr": "{% for message in messages %}\n{% if message['role'] == 'user' %}\n{{ '<|user|>\n' + "
              "message['content'] + eos_token }}\n{% elif message['role'] == 'system' %}\n{{ "
              "'<|system|>\n' + "
              "message['content'] + eos_token }}\n{% elif message['role'] == 'assistant' %}\n"
              "{{ '<|assistant|>\n'  + message['content'] + eos_token }}\n{% endif %}\n{% if loop.last and "
              "add_generation_prompt %}\n{{ '<|assistant|>' }}\n{% endif %}\n{% endfor %}",
    "Vicuna": "{%- if messages[0].role == 'system' %}{% set rest = messages[1:] %}{{ messages[0].content ~ "
              "' ' }}"
              "{%- else %}{% set rest = messages %}{{ 'A chat. ' }}{%- endif %}\n{%- for message in rest %}\n"
              "    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
              "{{ raise_exception('Roles must alternate') }}{% endif %}\n"
              "    {%- if message.role == 'user' %}{{ 'USER: ' + message.content | trim + ' ' }}\n"
              "    {%- else %}{{ 'ASSISTANT: ' + message.content.strip() + eos_token }}{% endif %}\n"
              "{%- endfor %}{# the answer #}\n{%- if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}\n",
    "Qwen": "{%- if tools %}\n    {{- '<|im_start|>system\\n' }}{{ tools | tojson }}\n{%- else %}\n"
            "    {%- if messages[0]['role'] == 'system' %}\n        {{- '<|im_start|>system\\n' + "
            "messages[0]['content'] + '<|im_end|>\\n' }}\n    {%- endif %}\n{%- endif %}\n"
            "{%- for message in messages %}\n    {%- if (message.role == \"user\") or (message.role == "
            "\"system\" and not loop.first) or (message.role == \"assistant\" and not message.tool_calls) "
            "%}\n"
            "        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}\n"
            "    {%- elif message.role == \"tool\" %}\n        {%- set ns = namespace(x=1) %}\n    {%- "
            "endif %}\n"
            "{%- endfor %}\n{%- if add_generation_prompt %}\n    {{- '<|im_start|>assistant\\n' }}\n{%- "
            "endif %}\n",
    "Llama 3": "{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = "
               "'<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ message['content'] | "
               "trim + "
               "'<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}"
               "{{ content }}{% endfor %}{% if add_generation_prompt %}{{ '<|start_header_id|>assistant"
               "<|end_header_id|>\n\n' }}{% endif %}",
    "Gemma": "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'assistant' %}"
             "{% set role = 'model' %}{% else %}{% set role = message['role'] %}{% endif %}"
             "{{ '<start_of_turn>' + role + '\n' + message['content'] | trim + '<end_of_turn>\n' }}{% "
             "endfor %}"
             "{% if add_generation_prompt %}{{'<start_of_turn>model\n'}}{% endif %}",
}
environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
cases = []
for name, source in TEMPLATES.items():
    for messages in ([U], [U, A], [S, U], [S, U, A, V], [S, U, A, V, B]):
        for asks in (False, True):
            text = environment.from_string(source).render(
                messages=messages, add_generation_prompt=asks, bos_token="<s>", eos_token="</s>")
            cases.append({"name": name, "messages": messages, "asks": asks, "text": text})
print(json.dumps({"templates": TEMPLATES, "cases": cases}, indent=1))
