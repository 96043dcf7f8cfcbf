"""Codex's tool ``apply_patch``: a custom tool, and the public Lark grammar of its input (openai/codex)."""

from typing import Any

GRAMMAR = r"""
start: begin_patch hunk+ end_patch
begin_patch: "*** Begin Patch" LF
end_patch: "*** End Patch" LF?

hunk: add_hunk | delete_hunk | update_hunk
add_hunk: "*** Add File: " filename LF add_line+
delete_hunk: "*** Delete File: " filename LF
update_hunk: "*** Update File: " filename LF change_move? change?

filename: /(.+)/
add_line: "+" /(.*)/ LF -> line

change_move: "*** Move to: " filename LF
change: (change_context | change_line)+ eof_line?
change_context: ("@@" | "@@ " /(.+)/) LF
change_line: ("+" | "-" | " ") /(.*)/ LF
eof_line: "*** End of File" LF

%import common.LF
"""
FORMAT: dict[str, Any] = {"syntax": "lark", "definition": GRAMMAR}
TOOL: dict[str, Any] = {
    "type": "custom",
    "name": "apply_patch",
    "description": "Edits files.",
    "format": {"type": "grammar", **FORMAT},
}
"""The tool in the form of the Responses API."""
CHAT_TOOL: dict[str, Any] = {
    "type": "custom",
    "custom": {"name": "apply_patch", "description": "Edits files.", "format": {"type": "grammar", "grammar": FORMAT}},
}
"""The tool in the form of chat completions."""
PATCH = """*** Begin Patch
*** Add File: a "b".txt
+C:\\dir \U0001f600
+
*** Update File: src/app.py
*** Move to: src/main.py
@@ def greet():
-print("Hi")
+\tprint("Hello")
 return
*** End of File
*** Delete File: old
*** End Patch
"""
