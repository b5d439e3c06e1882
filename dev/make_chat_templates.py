#!/usr/bin/env python3
"""Prints chat templates and what Jinja, set up as transformers does it, makes of conversations, for
chat_template_test. It makes tests/reference/chat_templates.json."""
import json

import jinja2
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
    "Gemma 3": "{{ bos_token }}\n{%- if messages[0]['role'] == 'system' -%}\n    {%- if messages[0]['content'] is "
               "string -%}\n        {%- set first_user_prefix = messages[0]['content'] + '\n\n' -%}\n    "
               "{%- else -%}\n        {%- set first_user_prefix = messages[0]['content'][0]['text'] + '\n\n' -%}\n"
               "    {%- endif -%}\n    {%- set loop_messages = messages[1:] -%}\n{%- else -%}\n    {%- set "
               "first_user_prefix = \"\" -%}\n    {%- set loop_messages = messages -%}\n{%- endif -%}\n"
               "{%- for message in loop_messages -%}\n    {%- if (message['role'] == 'user') != (loop.index0 % 2 "
               "== 0) -%}\n        {{ raise_exception(\"Conversation roles must alternate\") }}\n    {%- endif -%}\n"
               "    {%- if (message['role'] == 'assistant') -%}\n        {%- set role = \"model\" -%}\n    "
               "{%- else -%}\n        {%- set role = message['role'] -%}\n    {%- endif -%}\n    "
               "{{ '<start_of_turn>' + role + '\n' + (first_user_prefix if loop.first else \"\") }}\n    "
               "{%- if message['content'] is string -%}\n        {{ message['content'] | trim }}\n    {%- elif "
               "message['content'] is iterable -%}\n        {%- for item in message['content'] -%}\n            "
               "{{ item['text'] | trim }}\n        {%- endfor -%}\n    {%- else -%}\n        "
               "{{ raise_exception(\"Invalid content type\") }}\n    {%- endif -%}\n    {{ '<end_of_turn>\n' }}\n"
               "{%- endfor -%}\n{%- if add_generation_prompt -%}\n    {{'<start_of_turn>model\n'}}\n{%- endif -%}\n",
    "Mistral": "{{ bos_token }}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 "
               "== 0) %}{{ raise_exception('Conversation roles must alternate user/assistant/...') }}{% endif %}"
               "{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}"
               "{% elif message['role'] == 'assistant' %}{{ message['content'] + eos_token}}{% else %}"
               "{{ raise_exception('Only user and assistant roles are supported!') }}{% endif %}{% endfor %}",
    "Mistral 3": "{%- if messages[0][\"role\"] == \"system\" %}\n    {%- set system_message = messages[0]"
                 "[\"content\"] %}\n    {%- set loop_messages = messages[1:] %}\n{%- else %}\n    {%- set "
                 "loop_messages = messages %}\n{%- endif %}\n{%- if not tools is defined %}\n    {%- set tools = "
                 "none %}\n{%- endif %}\n{%- set user_messages = loop_messages | selectattr(\"role\", \"equalto\", "
                 "\"user\") | list %}\n\n{#- Roles must alternate, without tools #}\n{%- set ns = namespace() %}\n"
                 "{%- set ns.index = 0 %}\n{%- for message in loop_messages %}\n    {%- if not (message.role == "
                 "\"tool\" or message.role == \"tool_results\" or (message.tool_calls is defined and "
                 "message.tool_calls is not none)) %}\n        {%- if (message[\"role\"] == \"user\") != (ns.index "
                 "% 2 == 0) %}\n            {{- raise_exception(\"roles must alternate\") }}\n        {%- endif %}\n"
                 "        {%- set ns.index = ns.index + 1 %}\n    {%- endif %}\n{%- endfor %}\n\n{{- bos_token }}\n"
                 "{%- for message in loop_messages %}\n    {%- if message[\"role\"] == \"user\" %}\n        "
                 "{%- if tools is not none and (message == user_messages[-1]) %}\n            "
                 "{{- \"[AVAILABLE_TOOLS] [\" }}\n            {%- for tool in tools %}\n                {%- for key, "
                 "val in tool.items() if key != \"return\" %}\n                    {{- '\"' + key + '\": \"' + val }}\n"
                 "                {%- endfor %}\n            {%- endfor %}\n        {%- endif %}\n        {%- if "
                 "loop.last and system_message is defined %}\n            {{- \"[INST] \" + system_message + "
                 "\"\n\n\" + message[\"content\"] + \"[/INST]\" }}\n        {%- else %}\n            {{- \"[INST] \" "
                 "+ message[\"content\"] + \"[/INST]\" }}\n        {%- endif %}\n    {%- elif message.tool_calls is "
                 "defined and message.tool_calls is not none %}\n        {%- if message.tool_calls|length == 0 %}\n"
                 "            {{- raise_exception(\"none\") }}\n        {%- endif %}\n    {%- elif message[\"role\"] "
                 "== \"assistant\" %}\n        {{- \" \" + message[\"content\"]|trim + eos_token}}\n    {%- else %}\n"
                 "        {{- raise_exception(\"Only user and assistant roles\") }}\n    {%- endif %}\n{%- endfor %}\n",
    "Llama 3.1": "{{- bos_token }}\n{%- if custom_tools is defined %}\n    {%- set tools = custom_tools %}\n"
                 "{%- endif %}\n{%- if not date_string is defined %}\n    {%- set date_string = \"26 Jul 2024\" %}\n"
                 "{%- endif %}\n{%- if not tools is defined %}\n    {%- set tools = none %}\n{%- endif %}\n\n"
                 "{%- if messages[0]['role'] == 'system' %}\n    {%- set system_message = messages[0]['content']|"
                 "trim %}\n    {%- set messages = messages[1:] %}\n{%- else %}\n    {%- set system_message = \"\" %}\n"
                 "{%- endif %}\n\n{{- \"<|start_header_id|>system<|end_header_id|>\n\n\" }}\n{%- if builtin_tools "
                 "is defined or tools is not none %}\n    {{- \"Environment: ipython\n\" }}\n{%- endif %}\n"
                 "{%- if builtin_tools is defined %}\n    {{- \"Tools: \" + builtin_tools | reject('equalto', "
                 "'code_interpreter') | join(\", \") + \"\n\n\"}}\n{%- endif %}\n{{- \"Today Date: \" + date_string "
                 "+ \"\n\n\" }}\n{{- system_message }}\n{{- \"<|eot_id|>\" }}\n\n{%- for message in messages %}\n"
                 "    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) "
                 "%}\n        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ "
                 "message['content'] | trim + '<|eot_id|>' }}\n    {%- elif 'tool_calls' in message %}\n        "
                 "{%- if not message.tool_calls|length == 1 %}\n            {{- raise_exception(\"one\") }}\n        "
                 "{%- endif %}\n        {%- for arg_name, arg_val in tool_call.arguments | items %}\n            "
                 "{{- arg_name + '=\"' + arg_val + '\"' }}\n            {%- if not loop.last %}\n                "
                 "{{- \", \" }}\n            {%- endif %}\n        {%- endfor %}\n    {%- endif %}\n{%- endfor %}\n"
                 "{%- if add_generation_prompt %}\n    {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}\n"
                 "{%- endif %}\n",
    "Llama 2": "{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set "
               "system_message = messages[0]['content'] %}{% else %}{% set loop_messages = messages %}{% set "
               "system_message = false %}{% endif %}{% for message in loop_messages %}{% if loop.index0 == 0 and "
               "system_message != false %}{% set content = '<<SYS>>\n' + system_message + '\n<</SYS>>\n\n' + "
               "message['content'] %}{% else %}{% set content = message['content'] %}{% endif %}{% if "
               "message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}{% elif "
               "message['role'] == 'assistant' %}{{ ' '  + content.strip() + ' ' + eos_token }}{% endif %}"
               "{% endfor %}",
    "OpenChat": "{{ bos_token }}{% for message in messages %}{{ 'GPT4 Correct ' + message['role'].title() + ': ' + "
                "message['content'] + '<|end_of_turn|>'}}{% endfor %}{% if add_generation_prompt %}"
                "{{ 'GPT4 Correct Assistant:' }}{% endif %}",
    "Qwen 3": "{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}\n"
              "{%- for message in messages[::-1] %}\n    {%- set index = (messages|length - 1) - loop.index0 %}\n"
              "    {%- if ns.multi_step_tool and message.role == \"user\" and message.content is string and "
              "not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) "
              "%}\n        {%- set ns.multi_step_tool = false %}\n        {%- set ns.last_query_index = index %}\n"
              "    {%- endif %}\n{%- endfor %}\n{%- for message in messages %}\n    {%- if message.role == "
              "\"assistant\" %}\n        {%- set content = message.content %}\n        {%- set reasoning_content = '' "
              "%}\n        {%- if message.reasoning_content is string %}\n            {%- set reasoning_content = "
              "message.reasoning_content %}\n        {%- else %}\n            {%- if '</think>' in content %}\n"
              "                {%- set reasoning_content = content.split('</think>')[0].rstrip('\n').split("
              "'<think>')[-1].lstrip('\n') %}\n            {%- endif %}\n        {%- endif %}\n        {%- if "
              "loop.index0 > ns.last_query_index and (loop.last or (not loop.last and reasoning_content)) %}\n"
              "            {{- '<|im_start|>' + message.role + '\n<think>\n' + reasoning_content.strip('\n') + "
              "'\n</think>\n\n' + content.lstrip('\n') }}\n        {%- else %}\n            {{- '<|im_start|>' + "
              "message.role + '\n' + content }}\n        {%- endif %}\n        {{- '<|im_end|>\n' }}\n    "
              "{%- else %}\n        {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>' + "
              "'\n' }}\n    {%- endif %}\n{%- endfor %}\n{%- if add_generation_prompt %}\n    "
              "{{- '<|im_start|>assistant\n' }}\n    {%- if enable_thinking is defined and enable_thinking is false "
              "%}\n        {{- '<think>\n\n</think>\n\n' }}\n    {%- endif %}\n{%- endif %}\n",
}
# Alone; each gives a text, or an error.
EXPRESSIONS = [
    "'a' if true else raise_exception('no')", "raise_exception('no') if false else 'b'", "'a' if false",
    "raise_exception('no') if no else nothing.at.all if not no and no else 'c'", "nothing.at.all if no else 'd'",
    "true or raise_exception('no')", "no and no.member", "no is defined and no.member == 'x'",
    "(no or raise_exception('no')) if no else 'e'", "'f' if 1 == 1 or nothing[0] else nothing['x']",
    "no.member", "no['x']", "no['x'] if true else 'a'", "no or nothing.at", "true and no.x", "nothing()",
    "raise_exception('yes') if true else 'a'", "messages[7].role", "messages[7]", "messages[0].nothing",
    "messages[0].nothing.x", "'a' + no", "no + 1", "'a' ~ no ~ 1 ~ none ~ true", "'a' + 1", "none", "none + 'a'",
    "no is defined", "no is none", "none is none", "none is defined", "none is not defined", "not no is defined",
    "messages[0].role is string", "messages is mapping", "messages[0] is mapping", "1 is number", "3 is odd",
    "false is false", "no | default('g')", "'' | default('h', true)", "none | default('i')", "no | length",
    "'h\u00e9llo' | length", "messages | length", "messages | map(attribute='role') | join(', ')",
    "messages | selectattr('role', 'equalto', 'user') | list | length", "(messages | last).content | trim",
    "(messages | rejectattr('role', 'equalto', 'user') | first).role", "messages[1:] | length", "[1, 2, 3][::-1][0]",
    "[1, 2, 3, 4][1:3] | join('-')", "[1, 2, 3][-2:] | join", "[5, 6][-1]", "{'a': 1, 'b': 2}['b']", "{'a': 1}.a",
    "(1, 2) | length", "'b' in ['a', 'b']", "'b' not in 'abc'", "'role' in messages[0]", "'x' in no",
    "1 < 2 and 2 <= 2 and not 3 > 4 and 'a' < 'b'", "1 + 7 // 2", "7 - 2 - 1", "-1 % 2", "(0 - 7) // 2", "7 // 2",
    "2 ~ 3 + 4", "'a' ~ 1 + 2", "-(3)", "' x '.strip() + 'xxyx'.lstrip('x') + 'yxx'.rstrip('x')", "'a,b'.split(',')[1]",
    "'aXbX'.replace('X', '--')", "'user'.title() + 'aB'.upper() + 'aB'.lower() + 'aB'.capitalize()",
    "'two words' | title", "messages[0].get('role') ~ messages[0].get('no', 'x')", "'a' 'b'", "true == false", "1.5",
    "no == nothing", "no == none", "namespace(a=1).a", "messages[0].content.startswith(' ')", "messages[0]['role']|upper",
    "'%' + \"}\" + '\\\\n' + '\\n'", "'a' is in ['a']", "not 1 == 2", "1 if 'a' == 'a' else 2 if no.x else 3",
    "(messages[0].content if messages[0].role == 'user' else no.x) | trim", "messages | tojson if no else 'j'",
    "[] or {} or 'k'", "'l' if messages else ''", "messages[0].content[no.x] if no else 'm'",
]


def raise_exception(message):
    raise jinja2.TemplateError(message)


def render(source, **variables):
    """The text; null: an error."""
    try:
        return environment.from_string(source).render(bos_token="<s>", eos_token="</s>", **variables)
    except (jinja2.TemplateError, TypeError):
        return None


environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
environment.globals["raise_exception"] = raise_exception
cases = []
for name, source in TEMPLATES.items():
    for messages in ([U], [U, A], [S, U], [S, U, A, V], [S, U, A, V, B]):
        for asks in (False, True):
            cases.append({"name": name, "messages": messages, "asks": asks,
                          "text": render(source, messages=messages, add_generation_prompt=asks)})
expressions = [{"source": e, "text": render("{{ " + e + " }}", messages=[U, A])} for e in EXPRESSIONS]
print(json.dumps({"templates": TEMPLATES, "cases": cases, "expressions": expressions}, indent=1))
