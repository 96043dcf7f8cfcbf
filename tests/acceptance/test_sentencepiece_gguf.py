"""A GGUF file with a SentencePiece vocabulary, which OpenVINO GenAI does not read, is served: texts, grammars, ends."""

from pathlib import Path

import pytest

from shared.protocol.request import Sampling
from tests.support.engine_driver import options
from tests.support.engine_outputs import text_of
from tests.support.gguf_files import tiny_llama
from tests.unit.worker.model.test_gguf_tokenizer import PIECES, SENTENCE_PIECE
from worker.engine.protocol import EngineSequence, OutputGrammar, StepOutput
from worker.openvino.engine import OpenVINOEngine


def test_it_writes_follows_grammars_and_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    turn = PIECES.index("b")
    file = tmp_path / "tiny.gguf"
    metadata = {**SENTENCE_PIECE, "tokenizer.ggml.eot_token_id": turn}
    file.write_bytes(tiny_llama(metadata=metadata, tensors={"token_embd.weight": (len(PIECES), 64)}))
    engine = OpenVINOEngine(options(str(file), logits="on"), lambda stage: None)

    def run(grammar: OutputGrammar | None = None, allowed: tuple[int, ...] = ()) -> list[StepOutput]:
        sampling = Sampling(temperature=0.0, max_tokens=8, allowed_token_ids=allowed)
        engine.add(EngineSequence(number=1, prompt=(1, 5), sampling=sampling, grammar=grammar))
        outputs: list[StepOutput] = []
        while engine.busy():
            outputs += engine.step()
        return outputs

    assert text_of(run(OutputGrammar('root ::= "ab a" " "{2} "ü"'))) == "ab a  ü"
    assert run(allowed=(turn,))[-1].reason == "stop"
    assert run(allowed=(PIECES.index("a"),))[-1].reason == "length"
