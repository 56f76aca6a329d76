"""Computes how long a step takes on GPUs, by a roofline with measured efficiencies.

A step reads the weights it uses, multiplies, reads the KV cache, and waits for launches, for the
scheduler and for the other GPUs. The largest two of these overlap partly (root of the sum of
squares); the rest adds up. Efficiencies belong to an engine version on a kind of GPU, and come
from `constants/`. docs/engines.md has the equation, its fits and its errors.
"""

import math

import msgspec

from backends.gpu_engine.constants import EngineConstants, GpuConstants, find_engine
from backends.gpu_engine.spec import LINKS, GpuSpec, Link, find_gpu, find_precision
from wafer_engine.batching.cost_model import EngineLimits, StepShape
from wafer_engine.batching.speculation import NO_SPECULATION, Speculation
from wafer_engine.hardware.constants import SERVICE_CONSTANTS
from wafer_engine.hardware.cost import check_not_negative
from wafer_engine.hardware.model_config import model_named
from wafer_engine.hardware.models import ModelShape

ATTENTION_EFFICIENCY = 0.6  # of what matrix products reach, for prefill attention; assumed
ALLREDUCE_GROWTH = 0.15  # latency added per doubling of the group; assumed
LARGE_MESSAGE_BYTES = 4e6  # that no kernel for small allreduces takes; assumed
EXPERT_IMBALANCE = 1.2  # the busiest GPU's share of routed tokens over the mean's; assumed
MAX_COUNT = 1_000_000_000  # of GPUs, sequences, tokens: beyond any real number
HOP_US = 10.0  # activations passed from one pipeline stage to the next; assumed
# Predicted tokens are checked as long as a step's products take at most so much longer for them
# than for one token: beyond that, checking would be paid for by the others in the batch. Assumed.
CHECKING_SLOWDOWN = 1.5
MAX_CHECKED_TOKENS = 256
MAX_KNOWN_STEPS = 4_096  # numbers of tokens for which a step's products are remembered

# The documented default: 68 tokens/s for one user at 1,024 tokens of context.
DEFAULT_GPU = "H200-141GB-SXM"
DEFAULT_MODEL = "Llama-3.3-70B"
DEFAULT_TP = 2
DEFAULT_PRECISION = "fp8"
DEFAULT_ENGINE = "nim_1_8"


class Parallelism(msgspec.Struct, frozen=True):
    """Says how a model is spread over GPUs: tp x pp x dp of them."""

    tp: int = 1  # tensor parallel: every layer cut over this many GPUs
    pp: int = 1  # pipeline parallel: layers in this many stages, micro-batches in flight
    dp: int = 1  # attention replicas, each with its own sequences
    expert_parallel: bool = False  # routed experts spread over tp x dp GPUs, else cut by tp

    @property
    def num_gpus(self) -> int:
        return self.tp * self.pp * self.dp

    @property
    def stage_gpus(self) -> int:
        """Returns how many GPUs hold one layer's weights between them."""
        return self.tp * self.dp


def _growth(ways: int) -> float:
    """Returns by what factor an exchange among so many waits longer than its latency."""
    return 1 + ALLREDUCE_GROWTH * math.log2(ways)


def _check_counts(**counts: int | None) -> None:
    for name, count in counts.items():
        if count is not None and not 1 <= count <= MAX_COUNT:
            raise ValueError(f"{name} {count}: expected 1 to {MAX_COUNT:,}")


class GpuCost:
    """Computes the GPU engine's costs: one model on a group of GPUs.

    Satisfies `wafer_engine.batching.cost_model.CostModel`.
    """

    def __init__(
        self,
        gpu: str | GpuSpec = DEFAULT_GPU,
        model: str | ModelShape = DEFAULT_MODEL,
        *,
        tp: int = DEFAULT_TP,
        pp: int = 1,
        dp: int = 1,
        expert_parallel: bool = False,
        precision: str = DEFAULT_PRECISION,  # of the weights, from `spec.PRECISIONS`, in any case
        kv_precision: str | None = None,  # of the KV cache; None: bf16
        engine: str | EngineConstants = DEFAULT_ENGINE,  # a file name from `constants/`
        constants: GpuConstants | None = None,  # instead of the engine's own for this GPU
        speculation: Speculation = NO_SPECULATION,
        attention_window_tokens: int | None = None,  # sparse: any layer attends to at most
        max_num_seqs: int | None = None,  # running at most; None: the engine's own limit
        max_num_batched_tokens: int | None = None,  # computed in one step at most; likewise
        kv_capacity_tokens: int | None = None,  # instead of what memory leaves
        overhead_us: float | None = None,  # arrival to first scheduling
    ) -> None:
        """Spreads the model over `tp * pp * dp` GPUs and derives what a step costs.

        A card without 4-bit units keeps `fp4` weights as `mxfp4` and widens them before use. The
        overhead is that of the hosted wafer service where not given, as a hosted GPU service is
        assumed to have the same front end. Raises ValueError for an unknown name, a count below 1,
        or weights that do not fit (by how much).
        """
        _check_counts(tp=tp, pp=pp, dp=dp, attention_window_tokens=attention_window_tokens)
        self.gpu = find_gpu(gpu) if isinstance(gpu, str) else gpu
        self.model = model_named(model) if isinstance(model, str) else model
        self.parallel = Parallelism(tp, pp, dp, expert_parallel)
        self.precision = find_precision(precision, self.gpu)
        self.kv_bits = find_precision(kv_precision).weight_bits if kv_precision else 16.0
        self.engine = find_engine(engine) if isinstance(engine, str) else engine
        self.fit = constants or self.engine.for_gpu(
            self.gpu.name, self.model.moe is not None, self.gpu.link
        )
        self.speculation = speculation
        self._span = self.model.attention_span(attention_window_tokens)
        self._derive_weights()
        self._derive_attention()
        # Bytes per microsecond that one GPU sends within its link domain and out of it.
        self._exchange = link = self._link()
        self._link_rate = self.gpu.link_bytes_per_s * link.share / 1e6
        self._network_rate = self.gpu.network_bytes_per_s * link.share / 1e6
        self._moved_us: dict[float, float] = {}  # by tokens: products and exchanges of a step
        # What every step takes, and what does not change; a step is computed very often.
        self._is_one_stage = pp == 1
        self._steps_us = self.fit.step_us * pp
        self._layers_us = self.fit.layer_us * self.model.num_layers
        self._draft_tokens = speculation.draft_tokens
        # What a decoding sequence's token takes, as a share of the pass that checks its draft.
        drafting = 1.0 + speculation.draft_tokens * speculation.draft_cost
        self._draft_share = drafting / speculation.tokens_per_pass
        _check_counts(max_num_seqs=max_num_seqs, max_num_batched_tokens=max_num_batched_tokens)
        _check_counts(kv_capacity_tokens=kv_capacity_tokens)
        check_not_negative(overhead_us=overhead_us)
        max_num_seqs = max_num_seqs or self.engine.max_num_seqs
        max_num_batched_tokens = max_num_batched_tokens or self.engine.max_num_batched_tokens
        self.limits = EngineLimits(
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max(max_num_batched_tokens, max_num_seqs + 1),
            kv_capacity_tokens=kv_capacity_tokens or self._kv_capacity_tokens(),
            overhead_us=round(
                SERVICE_CONSTANTS.overhead_us if overhead_us is None else overhead_us
            ),
            max_checked_tokens=self._max_checked_tokens(),
        )

    def _link(self) -> Link:
        """Returns the constants of the GPUs' link: fitted ones only where they are of its kind."""
        link, fit = LINKS[self.gpu.link], self.fit
        if fit.links and self.gpu.link not in fit.links:
            return link
        return Link(
            fit.allreduce_us or link.allreduce_us,
            fit.all_to_all_us or link.all_to_all_us,
            fit.link or link.share,
        )

    def _max_checked_tokens(self) -> int:
        """Returns how many tokens one step may hold where it checks predictions."""
        most_us = CHECKING_SLOWDOWN * self._products_us(1)
        num_tokens = 1
        while num_tokens < MAX_CHECKED_TOKENS and self._products_us(2 * num_tokens) <= most_us:
            num_tokens *= 2
        return num_tokens

    def _derive_weights(self) -> None:
        model, bits = self.model, self.precision.weight_bits
        expert_bits = min(bits, model.native_expert_bits or bits)
        rest_bits = bits if bits >= 8 or not model.native_expert_bits else 16.0
        rest_params = model.num_params - model.expert_params
        self.weight_bytes = (rest_params * rest_bits + model.expert_params * expert_bits) / 8
        self._rest_bytes = (rest_params - model.embedding_params) * rest_bits / 8
        self._expert_bytes = model.expert_params * expert_bits / 8
        weight_only = bits <= 8 and self.precision.activation_bits > 8
        fit = self.fit
        self._read_rate = fit.memory * self.gpu.memory_bytes_per_s
        self._multiply_rate = fit.compute * self.gpu.flops(self.precision)
        if weight_only:
            self._read_rate *= fit.quantized
        if weight_only and bits < 8:
            self._multiply_rate *= fit.dequantized

    def _derive_attention(self) -> None:
        """Derives the time per token of context and per (query, key) pair, in microseconds."""
        model, gpu, fit = self.model, self.gpu, self.fit
        ways = self._kv_ways() * self.parallel.dp
        kv_bytes = model.kv_bytes_per_token(self.kv_bits)
        grouped = model.num_kv_heads < model.num_heads and not model.latent_kv
        efficiency = fit.grouped_kv if grouped and fit.grouped_kv else fit.kv
        self._context_us = kv_bytes / (efficiency * gpu.memory_bytes_per_s * ways) * 1e6
        pair_flops = 2 * model.attention_macs_per_pair * model.num_layers
        rate = self.parallel.num_gpus * ATTENTION_EFFICIENCY * fit.compute * gpu.fp16_flops
        self._pair_us = pair_flops / rate * 1e6

    def _kv_ways(self) -> int:
        """Returns over how many GPUs of a replica a token's KV is spread; MLA's latent never is."""
        return 1 if self.model.latent_kv else min(self.parallel.tp, self.model.num_kv_heads)

    def _kv_capacity_tokens(self) -> int:
        gpu, parallel = self.gpu, self.parallel
        cut = parallel.tp * parallel.pp
        spread = parallel.stage_gpus * parallel.pp if parallel.expert_parallel else cut
        rest = self.weight_bytes - self._expert_bytes
        weights = rest / cut + self._expert_bytes / spread
        free = gpu.memory_bytes - self.engine.buffer_bytes - weights
        if free <= 0:
            raise ValueError(
                f"{self.model.name} needs {weights / 1e9:.1f} GB of weights on each of "
                f"{parallel.num_gpus} x {gpu.name}, which have "
                f"{(gpu.memory_bytes - self.engine.buffer_bytes) / 1e9:.1f} GB: "
                f"{-free / 1e9:.1f} GB too little"
            )
        share = self.model.kv_bytes_per_token(self.kv_bits) / (self._kv_ways() * parallel.pp)
        return int(free * self.engine.memory_fraction / share * parallel.dp)

    def tokens_per_s(self, context_tokens: float, num_seqs: int = 1) -> float:
        return 1e6 / self.step_us(StepShape(num_seqs, round(num_seqs * context_tokens)))

    @property
    def power_w(self) -> float:
        """Returns the rated power of the whole machine."""
        return self.gpu.power_w * self.parallel.num_gpus

    def step_us(self, shape: StepShape) -> float:
        return self.step_us_of(
            shape.num_decode_seqs,
            shape.sum_context_tokens,
            shape.num_prefill_tokens,
            shape.num_prefill_pairs,
            shape.num_checked_tokens,
            shape.num_checked_pairs,
        )

    def step_us_of(
        self,
        seqs: float,
        context_tokens: float,
        prefill_tokens: float,
        prefill_pairs: float,
        checked_tokens: float = 0.0,
        checked_pairs: float = 0.0,
    ) -> float:
        """Returns the duration of a step whose numbers are means, as in a steady state.

        A token that is checked costs what one more token of the batch would, but the context is
        read once for all of a sequence's. In such a step the engine's own draft stands back.
        """
        drafted = 0 if checked_tokens else self._draft_tokens
        tokens = seqs * (1 + drafted) + prefill_tokens + checked_tokens
        fixed, fraction = self._span
        context = seqs * fixed + fraction * context_tokens
        pairs = (prefill_tokens + checked_tokens) * fixed
        pairs += fraction * (prefill_pairs + checked_pairs)
        # The host launches a layer's kernels while the layer before it runs: the slower one counts.
        floor_us = self.fit.eager_us if prefill_tokens else self.fit.launch_us
        products_us = self._moved_us.get(tokens)
        if products_us is None:
            if len(self._moved_us) >= MAX_KNOWN_STEPS:
                self._moved_us.clear()
            products_us = self._products_us(tokens) + self._exchange_us(tokens)
            self._moved_us[tokens] = products_us
        floor_us *= self.model.num_layers
        busy_us = (
            (products_us if products_us > floor_us else floor_us)
            + context * self._context_us / (1.0 if self._is_one_stage else self._busy_stages(seqs))
            + pairs * self._pair_us
            + self._steps_us
            + self._layers_us
            + self.fit.seq_us * seqs / self.parallel.dp
        )
        if not drafted or not seqs:
            return busy_us
        if prefill_tokens:  # a draft gains nothing for prompts: their part of the pass is whole
            decode_us = self.step_us_of(seqs, context_tokens, 0.0, 0.0)
            return decode_us + busy_us - decode_us / self._draft_share
        return busy_us * self._draft_share

    def growth_us(self, num_decode_seqs: int) -> float:
        """Returns how much a decode step grows when each sequence gains a token of context."""
        growth_us = num_decode_seqs * self._span[1] * self._context_us
        if not self._is_one_stage:
            growth_us /= self._busy_stages(num_decode_seqs)
        if not self._draft_tokens:
            return growth_us
        return growth_us * self._draft_share

    def _busy_stages(self, seqs: float) -> float:
        """Returns how many pipeline stages read KV caches at once: at most one per sequence."""
        return max(1.0, min(self.parallel.pp, seqs))

    def _products_us(self, tokens: float) -> float:
        """Returns the time of all matrix products: weights streamed against tokens multiplied.

        Pipeline stages work at the same time on a micro-batch each, and each streams its own
        weights once per micro-batch: a token takes as long as on one stage that holds them all.
        """
        parallel, model = self.parallel, self.model
        read_us = self._rest_bytes / (parallel.tp * self._read_rate) * 1e6
        imbalance = 1.0
        if model.moe is not None:
            micro_batch = tokens / parallel.pp
            unused = (1.0 - model.moe.top_k / model.moe.num_experts) ** micro_batch
            ways = parallel.stage_gpus if parallel.expert_parallel else parallel.tp
            read_us += self._expert_bytes * (1.0 - unused) / (ways * self._read_rate) * 1e6
            imbalance = EXPERT_IMBALANCE if parallel.expert_parallel else 1.0
        flops = 2 * model.matmul_params * tokens * imbalance
        rate = parallel.stage_gpus * parallel.pp * self._multiply_rate
        return math.hypot(read_us, flops / rate * 1e6)

    def _exchange_us(self, tokens: float) -> float:
        parallel, model = self.parallel, self.model
        width = model.hidden * 2
        num_moe = model.moe.num_layers if model.moe and parallel.expert_parallel else 0
        total_us = 0.0
        if parallel.tp > 1:
            ways = parallel.tp
            latency_us = self._allreduce_latency_us(tokens / parallel.dp * width) * _growth(ways)
            moved_us = self._allreduce_us(ways, tokens / parallel.dp * width) / parallel.pp
            total_us += (2 * model.num_layers - num_moe) * (latency_us + moved_us)
        if num_moe and model.moe and parallel.stage_gpus > 1:
            ways = parallel.stage_gpus
            latency_us = self._exchange.all_to_all_us * _growth(ways)
            routed = tokens / ways * model.moe.top_k * width
            moved_us = self._all_to_all_us(ways, routed) / parallel.pp
            total_us += 2 * num_moe * (latency_us + moved_us)
        if parallel.pp > 1:
            out = parallel.num_gpus > self.gpu.domain_gpus
            rate = self._network_rate if out else self._link_rate
            total_us += (parallel.pp - 1) * HOP_US + tokens * width / rate
        return total_us

    def _allreduce_latency_us(self, moved_bytes: float) -> float:
        """Returns an allreduce's latency: over NVLink that of small messages is the link's own.

        Engines have kernels for small ones there; what full batches gave is for large ones.
        """
        fitted_us, own_us = self._exchange.allreduce_us, LINKS[self.gpu.link].allreduce_us
        if fitted_us <= own_us or not self.gpu.has_switched_link:
            return fitted_us
        return own_us + (fitted_us - own_us) * min(1.0, moved_bytes / LARGE_MESSAGE_BYTES)

    def _allreduce_us(self, ways: int, moved_bytes: float) -> float:
        """Returns the transfer time of an allreduce. Across link domains it has three parts.

        A reduce-scatter over the domain's links, a ring between domains in which each GPU moves
        its own part through its own port, and an all-gather over the links.
        """
        inside = min(ways, self.gpu.domain_gpus)
        domains = math.ceil(ways / inside)
        return (
            2 * (inside - 1) / inside * moved_bytes / self._link_rate
            + 2 * (domains - 1) / domains * moved_bytes / inside / self._network_rate
        )

    def _all_to_all_us(self, ways: int, sent_bytes: float) -> float:
        """Returns the time for one GPU to send to all; links and network work at the same time."""
        inside = min(ways, self.gpu.domain_gpus)
        return max(
            (inside - 1) / ways * sent_bytes / self._link_rate,
            (ways - inside) / ways * sent_bytes / self._network_rate,
        )
