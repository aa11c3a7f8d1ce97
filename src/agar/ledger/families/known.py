"""Chat templates of published models, by the SHA-256 of their text; the texts themselves stay with the models."""

from collections.abc import Mapping

from agar.ledger.families.chatml import PlainChatML
from agar.ledger.families.deepseek import DeepSeekR1, DeepSeekV3, DeepSeekV31
from agar.ledger.families.glm import Glm45, Glm47
from agar.ledger.families.llama import Llama3
from agar.ledger.families.qwen import Qwen3, Qwen3VL, Qwen25, Qwen25VL, Qwen35
from agar.ledger.families.templated import TemplateFamily

KNOWN: Mapping[type[TemplateFamily], Mapping[str, str]] = {
    PlainChatML: {
        "plain": "fcf7a096fe99a48fd9ad2b250bf9237e96e8f48bffec1c7ea4d3f225176cd40e",
        "SmolLM2": "872be49dbb638044ad01b60388f48d469ff2980e5f0dccdc22ec907db54d0788",
    },
    Qwen25: {
        "Qwen2.5": "55b2f4a26ac9ee719330a61a0c39d9e538b0e9322212f048326318cff4f8674a",
        "Qwen3-Instruct-2507": "64f85b198065d0fba2a81f37e10ed68161ce2c19a754c7100e67e0ca2ee9c326",
    },
    Qwen3: {
        "Qwen3": "a55ee1b1660128b7098723e0abcd92caa0788061051c62d51cbe87d9cf1974d8",
    },
    Qwen25VL: {
        "Qwen2.5-VL": "a0bc6f6fc7a29a80017a433e8f03a1cc1236e838a944a2d034295a60c4f2fddb",
    },
    Qwen3VL: {
        "Qwen3-VL": "9d879ef91075acbfb2df7e441fd79d60bacfca989cf6d511d2af45c681e94f10",
    },
    Qwen35: {
        "Qwen3.5, reasoning by default": "a4aee8afcf2e0711942cf848899be66016f8d14a889ff9ede07bca099c28f715",
        "Qwen3.5, answering by default": "273d8e0e683b885071fb17e08d71e5f2a5ddfb5309756181681de4f5a1822d80",
        "Qwen3.6": "e84f32a23fdda27689f868aa4a1a5621f41133e51a48d7f3efcbea2839574259",
    },
    Glm45: {
        "GLM-4.5": "44f815868bf02fa458dd2f741a338046f4bf45f398eb6d067766726b9d96cce3",
        "GLM-4.6": "b1e56a48a6c16b1ccc8c3c8f2e2a28d6627efb93f15fbfe13eb1bbd175a4756b",
    },
    Glm47: {
        "GLM-4.7": "d63ad536c3c81880043e22ec7fd08db42b4d8fb7c89c7138bc562bfa25281375",
    },
    DeepSeekV3: {
        "DeepSeek-V3": "f7433633d77a4f705e0b2b8e37adc7c270240897a7d8be30c556ad6e1f387444",
    },
    DeepSeekR1: {
        "DeepSeek-R1": "56a1447ad31926fdc21fb07e56e5642bd9c850c4f52d8c8af7bbe5f079a84f5f",
        "DeepSeek-R1-0528": "563b1ce7d61d50a9b4c7439a912a1116f095b712df5b5e4d3e1116049874eb64",
    },
    DeepSeekV31: {
        "DeepSeek-V3.1": "37cabd20b2b62e3efe7fa55533ef0bc6e1eae63b60cf77265b2a09632aa1358d",
    },
    Llama3: {
        "Llama 3": "ba03a121d097859c7b5b9cd03af99aafe95275210d2876f642ad9929a150f122",
        "Llama 3.1, 3.3": "93c0e9aa3629bbd77e68dbc0f5621f6e6b23aa8d74b932595cdb8d64684526d7",
        "Llama 3.2": "d82792f95932f1c9cef5c4bd992f171225e3bf8c7b609b4557c9e1ec96be819f",
    },
}
"""Family to its models' templates: what has it, and the hash."""
