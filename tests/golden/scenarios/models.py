"""Models on their own: batches, caches, completions, retrievers."""

import asyncio
from typing import Any

from langchain_core.caches import InMemoryCache
from langchain_core.callbacks import CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.language_models.fake import FakeListLLM
from langchain_core.messages import HumanMessage
from langchain_core.retrievers import BaseRetriever

from .graphs import model_that_says
from .registry import Caller, scenario

PROMPTS: list[list[Any]] = [[HumanMessage("a")], [HumanMessage("b")]]


@scenario("18b")
def model_cache_hit(call: Caller) -> None:
    """The second answer comes from LangChain's cache and is not billed."""
    model = model_that_says("hi", cache=InMemoryCache())
    call.invoke(model, "q")
    call.invoke(model, "q")


@scenario("20", way="sync")
def batch_and_generate(call: Caller) -> None:
    """Every input of a batch is a run of its own, and so is every prompt of ``generate``."""
    model = model_that_says("hi")
    model.batch(["a", "b", "c"], call.config())
    model.generate(PROMPTS, callbacks=[call.handler()])
    asyncio.run(model.abatch(["a", "b"], call.config()))


@scenario("20")
async def _batch_and_generate(call: Caller) -> None:
    model = model_that_says("hi")
    await model.abatch(["a", "b", "c"], call.config())
    await model.agenerate(PROMPTS, callbacks=[call.handler()])
    await model.abatch(["a", "b"], call.config())


class _Library(BaseRetriever):
    def _get_relevant_documents(
        self,
        query: str,  # noqa: ARG002
        *,
        run_manager: CallbackManagerForRetrieverRun,  # noqa: ARG002
    ) -> list[Document]:
        return [Document("x", id="d1")]


@scenario("31")
def completion_and_retriever(call: Caller) -> None:
    """A completion model and a retriever, called on their own."""
    call.invoke(FakeListLLM(responses=["hi"]), "q")
    call.invoke(_Library(), "q")
