"""The model server's routes over real HTTP, with a simulated engine."""

from tests.support.fleet import Fleet


def test_openais_sdk_speaks_it_with_extra_fields(session_fleet: Fleet) -> None:
    client = session_fleet.client("v3")
    answer = client.chat.completions.create(
        model="sim", messages=[{"role": "user", "content": "hello"}], max_tokens=5, extra_body={"top_k": 1}
    )
    assert answer.choices[0].message.content
    assert [model.id for model in client.models.list()] == ["sim"]
    assert client.models.retrieve("sim").id == "sim"
