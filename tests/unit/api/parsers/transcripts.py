"""What models of each family write, and what a client should get of it."""
# ruff: noqa: RUF001 (DeepSeek's tokens have full-width bars)

from typing import Any

import msgspec

from tests.unit.api.parsers.transcript import Transcript

PARIS = ("get_weather", {"city": "Paris"})
NOW: tuple[str, dict[str, Any]] = ("get_time", {})
BRACES = 'if (a) { print("}]</tool_call>") } // \\d "q"\n'
CODE = ("run-code", {"code": BRACES})
CODE_JSON = msgspec.json.encode({"code": BRACES}).decode()
TOKYO = ("get_weather", {"city": "東京 🗼", "filters": {"tags": [1, -2.5e3, None, True, {"x": "{[,:"}]}})
TOKYO_JSON = '{"city": "東京 🗼", "filters": {"tags": [1, -2.5e3, null, true, {"x": "{[,:"}]}}'

HERMES = (
    Transcript(
        name="single",
        tools="hermes",
        text='<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>',
        calls=(PARIS,),
    ),
    Transcript(
        name="content before, two calls, content after",
        tools="hermes",
        text='Let me look.\n\n<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>\n'
        '<tool_call>\n{"name": "get_time", "arguments": {}}\n</tool_call>\nDone. ',
        content="Let me look.\n\nDone. ",
        calls=(PARIS, NOW),
    ),
    Transcript(
        name="reasoning, content and call",
        tools="hermes",
        reasoning="think",
        text="<think>\nThe user wants <tool_call> weather.\n</think>\n\nOne moment.\n"
        f'<tool_call>{{"name": "get_weather", "arguments": {TOKYO_JSON}}}</tool_call>',
        thoughts="The user wants <tool_call> weather.",
        content="One moment.",
        calls=(TOKYO,),
    ),
    Transcript(
        name="reasoning opened by the prompt",
        tools="hermes",
        reasoning="think",
        in_reasoning=True,
        text=f'I run it.\n</think>\n\n<tool_call>{{"arguments": {CODE_JSON}, "name": "run-code"}}</tool_call>',
        thoughts="I run it.",
        calls=(CODE,),
    ),
    Transcript(
        name="arguments as a string, null or absent, with other fields",
        tools="hermes",
        text='<tool_call>{"id": 7, "name": "get_weather", "arguments": "{\\"city\\": \\"Paris\\"}"}</tool_call>'
        '<tool_call>{"type": "function", "name": "get_time", "arguments": null}</tool_call>'
        '<tool_call>{"name": "get_time"}</tool_call>',
        calls=(PARIS, NOW, NOW),
    ),
    Transcript(
        name="several calls in one tag, closing brace and tag forgotten",
        tools="hermes",
        text='<tool_call>{"name": "get_time", "arguments": {}}\n{"name": "get_weather", '
        '"parameters": {"city": "Paris"}',
        calls=(NOW, PARIS),
    ),
    Transcript(
        name="control characters and needless escapes",
        tools="hermes",
        text='<tool_call>{"name": "run-code", "arguments": {"code": "a\tb\nc\\\'\\d"}}</tool_call>',
        calls=(("run-code", {"code": "a\tb\nc\\'\\d"}),),
    ),
    Transcript(
        name="thinking again behind a call",
        tools="hermes",
        reasoning="think",
        text='<think>one</think><tool_call>{"name": "get_time"}</tool_call><think>two</think>So, what is <think>?',
        thoughts="one\n\ntwo",
        content="So, what is <think>?",
        calls=(NOW,),
    ),
    Transcript(
        name="no call at all",
        tools="hermes",
        text="  a <b> </tool_call> c <tool \n",
        content="  a <b> </tool_call> c <tool \n",
    ),
)

QWEN_CODER = (
    Transcript(
        name="types from the schema",
        tools="qwen3_coder",
        text="<tool_call>\n<function=get_weather>\n<parameter=city>\n12345\n</parameter>\n<parameter=days>\n3\n"
        "</parameter>\n<parameter=metric>\nTrue\n</parameter>\n<parameter=zip>\n75001\n</parameter>\n"
        '<parameter=filters>\n{"a": [1, {"b": "}"}]}\n'
        "</parameter>\n<parameter=anything>\n2.5\n</parameter>\n</function>\n</tool_call>",
        calls=(
            (
                "get_weather",
                {
                    "city": "12345",
                    "days": 3,
                    "metric": True,
                    "zip": "75001",
                    "filters": {"a": [1, {"b": "}"}]},
                    "anything": 2.5,
                },
            ),
        ),
    ),
    Transcript(
        name="values over several lines, no parameters, no outer tag",
        tools="qwen3_coder",
        reasoning="think",
        in_reasoning=True,
        text='hm</think>Running.\n<tool_call>\n<function=run-code>\n<parameter=code>\ndef f():\n\n    return "</p>"\n\n'
        "</parameter>\n</function>\n</tool_call>\n<function=get_time>\n</function>",
        thoughts="hm",
        content="Running.",
        calls=(("run-code", {"code": 'def f():\n\n    return "</p>"\n'}), NOW),
    ),
    Transcript(
        name="null, not a number after all, unknown tool",
        tools="qwen3_coder",
        text="<tool_call><function=get_weather><parameter=zip>null</parameter><parameter=days>many</parameter>"
        "<parameter=metric>None</parameter></function></tool_call>"
        "<tool_call><function=other><parameter=x>007</parameter></function></tool_call>",
        calls=(("get_weather", {"zip": None, "days": "many", "metric": None}), ("other", {"x": "007"})),
    ),
    Transcript(
        name="tags inside a value",
        tools="qwen3_coder",
        text="<tool_call>\n<function=run-code>\n<parameter=code>\na</parameter> or\n</function>b\n</parameter>\n\n"
        "</function>\n</tool_call>",
        calls=(("run-code", {"code": "a</parameter> or\n</function>b"}),),
    ),
    Transcript(
        name="the end of the last value forgotten",
        tools="qwen3_coder",
        text='<tool_call>\n<function=get_weather>\n<parameter=filters>\n{"a": 1}\n</function>\n</tool_call>'
        "<tool_call><function=run-code><parameter=code>b</function></tool_call>",
        calls=(("get_weather", {"filters": {"a": 1}}), ("run-code", {"code": "b"})),
    ),
    Transcript(
        name="the end of reasoning forgotten before a call",
        tools="qwen3_coder",
        reasoning="think",
        in_reasoning=True,
        text="Where is <tool_call>?\n<tool_call>\n<function=get_time>\n</function>\n</tool_call>\nSo\n</think>\n\nNow.",
        thoughts="Where is <tool_call>?\n\nSo",
        content="Now.",
        calls=(NOW,),
    ),
)

LLAMA = (
    Transcript(
        name="bare",
        tools="llama3_json",
        text='{"name": "get_weather", "parameters": {"city": "Paris"}}',
        calls=(PARIS,),
    ),
    Transcript(
        name="python tag and several calls",
        tools="llama3_json",
        text=f'<|python_tag|>{{"name": "get_weather", "parameters": {TOKYO_JSON}}}; '
        '{"name": "get_time", "parameters": {}}',
        calls=(TOKYO, NOW),
    ),
    Transcript(
        name="an answer that is JSON",
        tools="llama3_json",
        text=' {"answer": {"name": "get_time"}}',
        content=' {"answer": {"name": "get_time"}}',
    ),
    Transcript(
        name="an answer that has a name",
        tools="llama3_json",
        text='{"name": "Ada", "parameters": {}} is JSON.',
        content='{"name": "Ada", "parameters": {}} is JSON.',
    ),
    Transcript(
        name="JSON in the middle of the content",
        tools="llama3_json",
        text='Say {"name": "get_time", "parameters": {}}.',
        content='Say {"name": "get_time", "parameters": {}}.',
    ),
    Transcript(
        name="code behind the python tag",
        tools="llama3_json",
        text="<|python_tag|>print([1])",
        content="<|python_tag|>print([1])",
    ),
)

PYTHONIC = (
    Transcript(
        name="parallel",
        tools="llama_pythonic",
        text='[get_weather(city="Paris"), get_time()]',
        calls=(PARIS, NOW),
    ),
    Transcript(
        name="every literal",
        tools="llama_pythonic",
        text="<|python_start|>[ get_weather( city = 'It\\'s \"東京\" \\x41\\u00e9\\U0001F5FC\\n\\d', "
        "days=-3, x=(1, 2.50,), y=[True, False, None, []],\n"
        "z={'a': {}, \"b\": [{'c': '()[]{},='}],}, w=.5, v=1_000, )]<|python_end|>\nThere.",
        content="There.",
        calls=(
            (
                "get_weather",
                {
                    "city": 'It\'s "東京" Aé🗼\n\\d',
                    "days": -3,
                    "x": [1, 2.5],
                    "y": [True, False, None, []],
                    "z": {"a": {}, "b": [{"c": "()[]{},="}]},
                    "w": 0.5,
                    "v": 1000,
                },
            ),
        ),
    ),
    Transcript(
        name="a link",
        tools="llama_pythonic",
        text="[get_time](https://example.org) [get_time()]",
        content="[get_time](https://example.org) [get_time()]",
    ),
    Transcript(name="an unknown name", tools="llama_pythonic", text="[foo(a=1)]", content="[foo(a=1)]"),
    Transcript(
        name="lfm2",
        tools="lfm2",
        text="<|tool_call_start|>[get_weather(city='Paris')]<|tool_call_end|>I looked.",
        content="I looked.",
        calls=(PARIS,),
    ),
)

MISTRAL = (
    Transcript(
        name="list",
        tools="mistral",
        text=f'Sure.\n[TOOL_CALLS] [{{"name": "get_weather", "arguments": {TOKYO_JSON}, "id": "VvvODy9mT"}}, '
        '{"name": "get_time", "arguments": {}}]',
        content="Sure.",
        calls=(TOKYO, NOW),
    ),
    Transcript(
        name="names and arguments",
        tools="mistral_args",
        reasoning="mistral",
        text=f"[THINK]Both.[/THINK][TOOL_CALLS]run-code[ARGS]{CODE_JSON}[TOOL_CALLS]get_time[CALL_ID]Vvv[ARGS]{{}}",
        thoughts="Both.",
        calls=(CODE, NOW),
    ),
)

PHI_AND_GRANITE = (
    Transcript(
        name="functools",
        tools="phi4",
        text=f'Looking.\n\nfunctools[{{"name": "get_weather", "arguments": {TOKYO_JSON}}}, '
        '{"name": "get_time", "arguments": {}}]',
        content="Looking.",
        calls=(TOKYO, NOW),
    ),
    Transcript(
        name="tool_call token",
        tools="phi4",
        reasoning="think",
        text='<think>Hm.</think><|tool_call|>[{"name": "get_weather", "arguments": {"city": "Paris"}}]<|/tool_call|>',
        thoughts="Hm.",
        calls=(PARIS,),
    ),
    Transcript(
        name="functools is a module",
        tools="phi4",
        text="import functools\nfunctools.partial(print)",
        content="import functools\nfunctools.partial(print)",
    ),
    Transcript(
        name="granite",
        tools="granite",
        reasoning="granite",
        text="Here is my thought process: easy.\n\nHere is my response:\n\n"
        '<|tool_call|>[{"name": "get_weather", "arguments": {"city": "Paris"}}]',
        thoughts="easy.",
        calls=(PARIS,),
    ),
)

DEEPSEEK = (
    Transcript(
        name="v3",
        tools="deepseek_v3",
        reasoning="think",
        in_reasoning=True,
        text="Both.\n</think>\n\nOn it.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather"
        f"\n```json\n{TOKYO_JSON}\n```<｜tool▁call▁end｜>\n"
        "<｜tool▁call▁begin｜>function<｜tool▁sep｜>get_time\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        thoughts="Both.",
        content="On it.",
        calls=(TOKYO, NOW),
    ),
    Transcript(
        name="v3.1",
        tools="deepseek_v31",
        text=f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>run-code<｜tool▁sep｜>{CODE_JSON}<｜tool▁call▁end｜>"
        "<｜tool▁call▁begin｜>get_time<｜tool▁sep｜><｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        calls=(CODE, NOW),
    ),
)

HARMONY = (
    Transcript(
        name="reasoning, preamble and call",
        tools="harmony",
        reasoning="harmony",
        text="<|channel|>analysis<|message|>Need weather.<|end|>"
        "<|start|>assistant<|channel|>commentary<|message|>I'll look.<|end|>"
        "<|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json"
        f"<|message|>{TOKYO_JSON}<|call|>",
        thoughts="Need weather.",
        content="I'll look.",
        calls=(TOKYO,),
    ),
    Transcript(
        name="recipient before the channel, two calls, final",
        tools="harmony",
        reasoning="harmony",
        text=f" to=functions.run-code<|channel|>commentary json<|message|>{CODE_JSON}<|end|>"
        "<|start|>assistant to=functions.get_time<|channel|>commentary<|message|><|call|>"
        "<|start|>assistant<|channel|>final<|message|>**Done** < 5 <|return|>",
        content="**Done** < 5 ",
        calls=(CODE, NOW),
    ),
    Transcript(
        name="messages of one kind, ends forgotten",
        reasoning="harmony",
        text="<|channel|>analysis<|message|>one<|channel|>analysis<|message|>two<|start|>assistant<|channel|>final<|message|>three",
        thoughts="one\n\ntwo",
        content="three",
    ),
    Transcript(
        name="a call that nobody asked for",
        reasoning="harmony",
        text='<|channel|>commentary to=functions.f<|message|>{"a": 1}<|call|>',
        content='{"a": 1}',
    ),
    Transcript(
        name="reasoning opened by the prompt",
        reasoning="harmony",
        in_reasoning=True,
        text="one<|end|><|start|>assistant<|channel|>final<|message|>two<|return|>",
        thoughts="one",
        content="two",
    ),
    Transcript(name="no header", reasoning="harmony", text=" plain <|text", content=" plain <|text"),
)

GUIDED = (
    Transcript(
        name="list",
        guided=True,
        text=f'[{{"name":"get_weather","arguments":{TOKYO_JSON}}},{{"name":"get_time","arguments":{{}}}}]',
        calls=(TOKYO, NOW),
    ),
    Transcript(name="object", guided=True, text=f'{{"name":"run-code","arguments":{CODE_JSON}}}\n', calls=(CODE,)),
)

REASONING_ONLY = (
    Transcript(
        name="think",
        reasoning="think",
        text="<think>\na\n\nb\n</think>\n\nc </think> d",
        thoughts="a\n\nb",
        content="c </think> d",
    ),
    Transcript(name="empty", reasoning="think", text="<think>\n\n</think>\n\nHello", content="Hello"),
    Transcript(name="none", reasoning="think", text="Hello <think> x", content="Hello <think> x"),
    Transcript(name="never ends", reasoning="think", in_reasoning=True, text="a\n</thin", thoughts="a\n</thin"),
    Transcript(name="magistral", reasoning="mistral", text="[THINK]a[1][/THINK]b", thoughts="a[1]", content="b"),
)

TRANSCRIPTS = (
    *HERMES,
    *QWEN_CODER,
    *LLAMA,
    *PYTHONIC,
    *MISTRAL,
    *PHI_AND_GRANITE,
    *DEEPSEEK,
    *HARMONY,
    *GUIDED,
    *REASONING_ONLY,
)
