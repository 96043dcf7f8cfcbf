"""Chat templates in the style of model families, with what differs between them, and no text of theirs."""

from textwrap import dedent


def _template(source: str) -> str:
    return dedent(source).strip()


CHATML = _template("""
    {% for m in messages %}
    {{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}
    {% endfor %}
    {% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}
""")

HERMES = _template("""
    {% if tools %}{{ '<|im_start|>system\\nTools:' }}{% for t in tools %}{{ t | tojson }}{% endfor %}
    {{ '\\nAnswer <tool_call>{"name": NAME, "arguments": ARGUMENTS}</tool_call>.<|im_end|>\\n' }}{% endif %}
    {% for m in messages %}
    {{ '<|im_start|>' + ('user' if m.role == 'tool' else m.role) + '\\n' }}
    {%- if m.role == 'tool' %}{{ '<tool_response>\\n' + m.content + '\\n</tool_response>' }}
    {%- else %}{{ m.content.split('</think>')[-1] if m.content }}
    {%- for c in m.tool_calls or [] %}
    {{- '\\n<tool_call>\\n{"name": "' + c.function.name + '", "arguments": ' }}
    {{- (c.function.arguments | tojson) + '}\\n</tool_call>' }}
    {%- endfor %}{% endif %}{{ '<|im_end|>\\n' }}
    {% endfor %}
    {% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}
""")

QWEN_CODER = _template("""
    {% if tools | length %}{{ '<|im_start|>system\\nTools:' }}{% for t in tools %}{{ t.function | tojson }}{% endfor %}
    {{ '\\nAnswer <tool_call>\\n<function=NAME>\\n<parameter=KEY>\\nVALUE\\n</parameter>\\n</function>.<|im_end|>\\n' }}
    {% endif %}
    {% for m in messages %}
    {{ '<|im_start|>' + m.role + '\\n' + (m.content or '') }}
    {%- for c in m.tool_calls or [] %}
    {{- '<tool_call>\\n<function=' + c.function.name + '>\\n' }}
    {%- for key, value in c.function.arguments | items %}
    {{- '<parameter=' + key + '>\\n' + (value if value is string else value | tojson) + '\\n</parameter>\\n' }}
    {%- endfor %}{{ '</function>\\n</tool_call>' }}{% endfor %}{{ '<|im_end|>\\n' }}
    {% endfor %}
    {% if add_generation_prompt %}{{ '<|im_start|>assistant\\n<think>\\n' }}{% endif %}
""")

OVMS_QWEN_CODER = QWEN_CODER.replace("c.function.arguments | items", "c.function.arguments | from_json | items")

MISTRAL = _template("""
    {% if messages[0].role == 'system' %}{% set system = messages[0].content %}{% set rest = messages[1:] %}
    {% else %}{% set rest = messages %}{% endif %}
    {% set ns = namespace(turn=0) %}
    {% for m in rest %}{% if m.role == 'user' or (m.role == 'assistant' and not m.tool_calls) %}
    {% if (m.role == 'user') != (ns.turn % 2 == 0) %}{{ raise_exception('The turns do not alternate.') }}{% endif %}
    {% set ns.turn = ns.turn + 1 %}{% endif %}{% endfor %}
    {% set ns.users = rest | selectattr('role', 'equalto', 'user') | list %}
    {% for m in rest %}
    {% if m.role == 'user' %}
    {% if tools and m == ns.users[-1] %}{{ '[AVAILABLE_TOOLS]' + (tools | tojson) + '[/AVAILABLE_TOOLS]' }}{% endif %}
    {{ '[INST]' + (system + '\\n\\n' if system is defined and loop.last else '') + m.content + '[/INST]' }}
    {% elif m.tool_calls %}
    {{ '[TOOL_CALLS][' }}{% for c in m.tool_calls %}
    {% if c.id | length != 9 %}{{ raise_exception('Ids have 9 characters.') }}{% endif %}
    {{ {'name': c.function.name, 'arguments': c.function.arguments, 'id': c.id} | tojson }}
    {% if not loop.last %}{{ ', ' }}{% endif %}{% endfor %}{{ ']</s>' }}
    {% elif m.role == 'assistant' %}{{ m.content + '</s>' }}
    {% elif m.role == 'tool' %}
    {% if m.tool_call_id | length != 9 %}{{ raise_exception('Ids have 9 characters.') }}{% endif %}
    {{ '[TOOL_RESULTS]' + ({'content': m.content, 'call_id': m.tool_call_id} | tojson) + '[/TOOL_RESULTS]' }}
    {% else %}{{ raise_exception('Only users, assistants and tools.') }}{% endif %}
    {% endfor %}
""")

MISTRAL_ARGS = (
    MISTRAL.replace("'[TOOL_CALLS]['", "''")
    .replace(
        "{{ {'name': c.function.name, 'arguments': c.function.arguments, 'id': c.id} | tojson }}",
        "{{ '[TOOL_CALLS]' + c.function.name + '[CALL_ID]' + c.id + '[ARGS]' + (c.function.arguments | tojson) }}",
    )
    .replace("']</s>'", "'</s>'")
    .replace("{{ ', ' }}", "")
)

LLAMA3 = _template("""
    {% set ns = namespace(tools=tools) %}
    {% for m in messages %}
    {% if m.tool_calls %}
    {% if m.tool_calls | length != 1 %}{{ raise_exception('One call at once.') }}{% endif %}
    {% set c = m.tool_calls[0].function %}
    {{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n{"name": "' + c.name + '", "parameters": ' }}
    {{- (c.arguments | tojson) + '}<|eot_id|>' }}
    {% else %}
    {{ '<|start_header_id|>' + m.role + '<|end_header_id|>\\n\\n' }}
    {%- if ns.tools and m.role == 'user' %}
    {{- 'Answer {"name": NAME, "parameters": PARAMETERS}.' + (tools | tojson) }}{% set ns.tools = none %}{% endif %}
    {{- m.content + '<|eot_id|>' }}
    {% endif %}{% endfor %}
    {% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}
""")

HARMONY = _template("""
    {{ '<|start|>system<|message|>Be brief.<|end|>' }}
    {% if messages[0].role in ['system', 'developer'] %}{% set rules = messages[0].content %}
    {% set rest = messages[1:] %}{% else %}{% set rest = messages %}{% endif %}
    {% if rules or tools %}{{ '<|start|>developer<|message|>' + (rules or '') }}
    {% for t in tools or [] %}{{ '// ' + t.function.description + '\\ntype ' + t.function.name }}{% endfor %}
    {{ '<|end|>' }}{% endif %}
    {% for m in rest %}
    {% if m.role == 'assistant' and m.tool_calls %}
    {% if m.content and m.thinking %}{{ raise_exception('Content or thinking, not both.') }}{% endif %}
    {% if m.content or m.thinking %}
    {{ '<|start|>assistant<|channel|>analysis<|message|>' + (m.thinking or m.content) + '<|end|>' }}{% endif %}
    {% set c = m.tool_calls[0].function %}
    {{ '<|start|>assistant to=functions.' + c.name + '<|channel|>commentary json<|message|>' }}
    {{- (c.arguments | tojson) + '<|call|>' }}
    {% elif m.role == 'assistant' %}{{ '<|start|>assistant<|channel|>final<|message|>' + m.content }}
    {{- '<|return|>' if loop.last else '<|end|>' }}
    {% elif m.role == 'tool' %}{{ '<|start|>functions.f to=assistant<|channel|>commentary<|message|>' }}
    {{- (m.content | tojson) + '<|end|>' }}
    {% elif m.role == 'user' %}{{ '<|start|>user<|message|>' + m.content + '<|end|>' }}{% endif %}
    {% endfor %}
    {% if add_generation_prompt %}{{ '<|start|>assistant' }}{% endif %}
""")

GRANITE = _template("""
    {% if tools %}{{ '<|start_of_role|>tools<|end_of_role|>' + (tools | tojson) }}
    {{ 'To call one, write <|tool_call|> and a list.<|end_of_text|>' }}{% endif %}
    {% for m in messages %}
    {{ '<|start_of_role|>' + m.role + '<|end_of_role|>' + m.content + '<|end_of_text|>' }}
    {% endfor %}
    {% if add_generation_prompt %}{{ '<|start_of_role|>assistant<|end_of_role|>' }}
    {% if thinking %}{{ 'Put thoughts in <think></think>.' }}{% endif %}{% endif %}
""")

LFM2 = _template("""
    {% for m in messages %}
    {{ '<|im_start|>' + m.role + '\\n' + m.content }}
    {%- if tools and loop.first %}{{ 'List of tools: ' + (tools | tojson) }}{% endif %}{{ '<|im_end|>\\n' }}
    {% endfor %}
    {% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}
""")

PHI4_MINI = _template("""
    {% for m in messages %}
    {{ '<|' + m.role + '|>' + m.content }}
    {%- if tools and loop.first %}{{ 'Write functools[{"name": NAME}].' + (tools | tojson) }}{% endif %}
    {%- for c in m.tool_calls or [] %}
    {{- '{"name": "' + c.function.name + '", "arguments": ' + (c.function.arguments | tojson) + '}' }}{% endfor %}
    {{- '<|end|>' }}
    {% endfor %}
    {{ '<|assistant|>' }}
""")

DEEPSEEK = _template("""
    {% for m in messages %}
    {% if m.role == 'user' %}{{ '<User>' + m.content }}
    {% elif m.role == 'system' %}{{ m.content }}
    {% elif m.role == 'tool' %}{{ '<Output>' + m.content }}
    {% elif m.tool_calls %}{% for c in m.tool_calls %}
    {{ '<Assistant><CALL_BEGIN>' + c.type + '<SEP>' + c.function.name + '\\n```json\\n' + c.function.arguments }}
    {{- '\\n```<CALL_END>' }}{% endfor %}
    {% else %}{{ '<Assistant>' + m.content.split('</think>')[-1] }}{% endif %}
    {% endfor %}
    {% if add_generation_prompt %}{{ '<Assistant><think>\\n' }}{% endif %}
""")
for word, token in {
    "<CALL_BEGIN>": "<｜tool▁call▁begin｜>",  # noqa: RUF001 (the tokens have a full-width bar)
    "<CALL_END>": "<｜tool▁call▁end｜>",  # noqa: RUF001
    "<SEP>": "<｜tool▁sep｜>",  # noqa: RUF001
}.items():
    DEEPSEEK = DEEPSEEK.replace(word, token)

DEEPSEEK_WITH_TOOLS = "{% if tools %}{{ tools | tojson }}{% endif %}" + DEEPSEEK

LAST_SYSTEM = _template("""
    {% set ns = namespace(system='') %}
    {% for m in messages if m.role == 'system' %}{% set ns.system = m.content %}{% endfor %}
    {{ ns.system }}
    {% for m in messages if m.role != 'system' %}{{ '<' + m.role + '>' + m.content }}{% endfor %}
    {% if add_generation_prompt %}{{ '<assistant>' }}{% endif %}
""")

GLM = _template("""
    {% if tools %}{{ tools | tojson }}{{ 'Write <tool_call>NAME<arg_key>KEY</arg_key></tool_call>.' }}{% endif %}
    {% for m in messages %}
    {{ '<|' + m.role + '|>' + m.content }}
    {%- for c in m.tool_calls or [] %}{{ '<tool_call>' + c.function.name }}
    {%- for key, value in c.function.arguments | items %}
    {{- '<arg_key>' + key + '</arg_key><arg_value>' ~ value ~ '</arg_value>' }}{% endfor %}
    {{- '</tool_call>' }}{% endfor %}
    {% endfor %}
    {% if add_generation_prompt %}{{ '<|assistant|><think></think>' }}{% endif %}
""")

KIMI_K3 = _template("""
    {% if tools %}{{ '<|open|>message role="system"<|sep|>' + (tools | tojson) + '<|close|>message<|sep|>' }}{% endif %}
    {% for m in messages %}
    {{ '<|open|>message role="' + m.role + '"<|sep|>' }}
    {%- if m.role != 'assistant' %}{{ m.content }}{% else %}
    {{- '<|open|>think<|sep|>' + (m.reasoning_content or '') + '<|close|>think<|sep|><|open|>response<|sep|>' }}
    {{- (m.content or '') + '<|close|>response<|sep|>' }}
    {%- if m.tool_calls %}{{ '<|open|>tools<|sep|>' }}{% for c in m.tool_calls %}
    {{- '<|open|>call tool="' + c.function.name + '" index="' + loop.index | string + '"<|sep|>' }}
    {%- for key, value in c.function.arguments | items %}{{ '<|open|>argument key="' + key + '" type="' }}
    {{- ('string' if value is string else 'number') ~ '"<|sep|>' ~ value ~ '<|close|>argument<|sep|>' }}{% endfor %}
    {{- '<|close|>call<|sep|>' }}{% endfor %}
    {{- '<|close|>tools<|sep|>' }}{% endif %}{% endif %}{{ '<|close|>message<|sep|><|im_end|>' }}
    {% endfor %}
    {% if add_generation_prompt %}{{ '<|open|>message role="assistant"<|sep|><|open|>think<|sep|>' }}{% endif %}
""")

MINIMAX_M3 = _template("""
    {% set t = ']<]minimax[>[' %}
    {% if tools %}{{ ']~b]developer\n' + (tools | tojson) + t + '<tool_call>' + t + '</tool_call>[e~[\n' }}{% endif %}
    {% for m in messages %}{% if m.role != 'assistant' %}{{ ']~b]' + m.role + '\n' + m.content }}{% else %}
    {{- ']~b]ai\n' + ('<mm:think>' + m.reasoning_content if m.reasoning_content else '') + '</mm:think>' }}
    {{- m.content or '' }}
    {%- if m.tool_calls %}{{ t + '<tool_call>\n' }}{% for c in m.tool_calls %}
    {{- t + '<invoke name="' + c.function.name + '">' }}
    {%- for key, value in c.function.arguments | items %}{{ t + '<' + key + '>' ~ value ~ t + '</' + key + '>' }}
    {%- endfor %}{{ t + '</invoke>\n' }}{% endfor %}{{ t + '</tool_call>' }}{% endif %}{% endif %}{{ '[e~[\n' }}
    {% endfor %}
    {% if add_generation_prompt %}{{ ']~b]ai\n' }}{% endif %}
""")

GEMMA = _template("""
    {% if messages[0].role == 'system' %}{{ raise_exception('No system messages.') }}{% endif %}
    {% for m in messages %}
    {% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('The turns do not alternate.') }}{% endif %}
    {{ '<start_of_turn>' + ('model' if m.role == 'assistant' else m.role) + '\\n' + m.content + '<end_of_turn>\\n' }}
    {% endfor %}
    {% if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}
""")

NO_SYSTEM = _template("""
    {% for m in messages %}{% if m.role in ['user', 'assistant'] %}{{ m.role + ': ' + m.content + '\\n' }}{% endif %}
    {% endfor %}
""")

KIMI_K2 = _template("""
    {% if tools %}{{ '<|im_system|>tools<|im_middle|>' + (tools | tojson) + '<|im_end|>' }}{% endif %}
    {% for m in messages %}
    {{ '<|im_' + m.role + '|>' + (m.tool_call_id or '') + '<|im_middle|>' + (m.content or '') }}
    {%- if m.tool_calls %}{{ '<|tool_calls_section_begin|>' }}{% for c in m.tool_calls %}
    {{- '<|tool_call_begin|>' + c.id + '<|tool_call_argument_begin|>' + (c.function.arguments | tojson) }}
    {{- '<|tool_call_end|>' }}{% endfor %}{{ '<|tool_calls_section_end|>' }}{% endif %}{{ '<|im_end|>' }}
    {% endfor %}
    {% if add_generation_prompt %}{{ '<|im_assistant|>assistant<|im_middle|>' }}{% endif %}
""")

UNQUOTED = _template("""
    {% for m in messages %}
    {{ '<' + m.role + '>' + (m.content or '') }}
    {%- if loop.first and tools %}{{ tools | tojson }}{% endif %}
    {%- for c in m.tool_calls or [] %}{{ '[' + c.function.name + '(' }}
    {%- for key, value in c.function.arguments | items %}{{ key ~ '=' ~ value }}{% endfor %}{{ ')]' }}{% endfor %}
    {% endfor %}
    {% if add_generation_prompt %}{{ '<assistant>' }}{% endif %}
""")

DESCRIBED = _template("""
    {% for t in tools or [] %}{{ 'def ' + t.function.name + ': ' + t.function.description + '\\n' }}
    {%- for key, value in t.function.parameters.properties | items %}{{ key + ': ' + value.description }}{% endfor %}
    {% endfor %}
    {% for m in messages %}
    {{ '<' + m.role + '>' + (m.content or '') }}
    {%- for c in m.tool_calls or [] %}
    {{- '<tool_call>{"name": "' + c.function.name + '", "arguments": ' + (c.function.arguments | tojson) }}
    {{- '}</tool_call>' }}
    {%- endfor %}
    {% endfor %}
    {% if add_generation_prompt %}{{ '<assistant>' }}{% endif %}
""")

ONYX = _template("""
    {% for m in messages %}
    {{ '<|start|>' + m.role }}
    {%- if m.role == 'assistant' and m.reasoning_content %}
    {{- ' to=self<|message|>' + m.reasoning_content + '<|eom|><|start|>assistant' }}{% endif %}
    {%- for c in m.tool_calls or [] %}
    {{- ' to=' + c.function.name + '<|message|><atem:function_calls>\\n' }}
    {{- '<atem:invoke name="' + c.function.name + '">\\n' }}
    {%- for key, value in c.function.arguments | items %}
    {{- '<atem:parameter name="' ~ key ~ '">' ~ value ~ '</atem:parameter>\\n' }}{% endfor %}
    {{- '</atem:invoke>\\n</atem:function_calls>' }}{% else %}{{ ' to=user' if m.role == 'assistant' }}
    {{- '<|message|>' + m.content }}{% if tools and loop.first %}{{ tools | tojson }}{% endif %}{% endfor %}
    {{- '<|eot|>' }}
    {% endfor %}
    {% if add_generation_prompt %}{{ '<|start|>assistant' }}{% endif %}
""")
