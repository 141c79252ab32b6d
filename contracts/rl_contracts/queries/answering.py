"""Answers any query of a run."""

from __future__ import annotations

from rl_contracts.documents.run import Run
from rl_contracts.queries import groups, images, metrics, rollouts, search, summaries
from rl_contracts.queries.answers import Answer, NotFound
from rl_contracts.queries.kinds import (
    ImageQuery,
    MetricsQuery,
    PoliciesQuery,
    PromptsQuery,
    Query,
    ReportQuery,
    RolloutQuery,
    SearchQuery,
    StepQuery,
    SummaryQuery,
)
from rl_contracts.queries.tokenizer import Vocabularies
from rl_contracts.stores.connect import Stores

NO_RUN = "The run has no documents: no trainer has started yet, or its data are deleted."


class Answering:
    """Answers queries from the stores of a namespace."""

    def __init__(self) -> None:
        """Know no tokenizer yet."""
        self._vocabularies = Vocabularies()

    def answer(
        self, stores: Stores, query: Query, *, run: str, namespace: str, tokenizer: str = ""
    ) -> Answer:
        """Answer a query.

        Args:
            stores: of the namespace; other namespaces may use the same.
            query: what is asked.
            run: id of the run.
            namespace: whose runs may be read; a run of another one does not exist.
            tokenizer: ``s3://`` URI of the folder with the run's ``tokenizer.json``; may be empty.

        Raises:
            StoreUnavailableError, AccessDeniedError: as the stores.
            IntegrityError: an object in the bucket is damaged.
        """
        document = stores.runs.get(run)
        if document is None or document.namespace != namespace:
            return NotFound(missing=NO_RUN)
        return self._of_run(stores, document, query, tokenizer)

    def _of_run(self, stores: Stores, run: Run, query: Query, tokenizer: str) -> Answer:
        match query:
            case SummaryQuery():
                return summaries.answer_summary(stores, run)
            case MetricsQuery():
                return metrics.answer(stores, run, query)
            case StepQuery():
                return groups.answer_step(stores, run, query)
            case PromptsQuery():
                return groups.answer_prompts(stores, run, query)
            case RolloutQuery():
                known = self._vocabularies
                return rollouts.answer(stores, run, query, vocabularies=known, tokenizer=tokenizer)
            case ImageQuery():
                return images.answer(stores, run, query)
            case SearchQuery():
                return search.answer(stores, run, query)
            case PoliciesQuery():
                return summaries.answer_policies(stores, run, query)
            case ReportQuery():
                return summaries.answer_report(stores, run)
