"""A text model dressed as a Gemma3ForConditionalGeneration checkpoint, with a few vision tensors."""

from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file, save_file

VISION = {
    "model_type": "siglip_vision_model", "hidden_size": 8, "intermediate_size": 8, "image_size": 4,
    "num_attention_heads": 1, "num_hidden_layers": 1, "patch_size": 2, "num_channels": 3,
}


def vision_tensors(text_width: int) -> dict[str, torch.Tensor]:
    """Some of what a checkpoint has beside the text model: 4, 2 and 1 dimensions."""
    generator = torch.Generator().manual_seed(1)
    shapes = {
        "vision_tower.vision_model.embeddings.patch_embedding.weight": (8, 3, 2, 2),
        "vision_tower.vision_model.embeddings.patch_embedding.bias": (8,),
        "vision_tower.vision_model.encoder.layers.0.self_attn.q_proj.weight": (8, 8),
        "multi_modal_projector.mm_input_projection_weight": (8, text_width),
        "multi_modal_projector.mm_soft_emb_norm.weight": (8,),
    }
    return {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}


def wrap_multimodal(config: dict, folder: Path, prefix: str) -> dict:
    """Renames the tensors of model.safetensors, adds vision tensors, and returns the new config.json.

    `prefix` takes the place of "model.": "language_model.model." in the published files,
    "model.language_model." in those of transformers 4.52 and later, where vision is below "model." too.
    """
    path = folder / "model.safetensors"
    tensors = {prefix + name.removeprefix("model."): weight for name, weight in load_file(path).items()}
    above = "model." if prefix.startswith("model.") else ""
    tensors |= {above + name: weight for name, weight in vision_tensors(config["hidden_size"]).items()}
    save_file(tensors, path, metadata={"format": "pt"})
    path.chmod(0o644)
    dtype = {key: config.pop(key) for key in ("dtype", "torch_dtype") if key in config}
    version = config.pop("transformers_version")
    config.pop("architectures")
    return {
        "architectures": ["Gemma3ForConditionalGeneration"], **dtype, "eos_token_id": [1, 5],
        "image_token_index": 262144, "mm_tokens_per_image": 1, "model_type": "gemma3",
        "text_config": config, "transformers_version": version, "vision_config": VISION,
    }


def reload_multimodal(folder: Path):
    """The whole model; vision weights that the file lacks are random and not used for text."""
    return transformers.Gemma3ForConditionalGeneration.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    ).eval()
