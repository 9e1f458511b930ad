// A model folder as Hugging Face's libraries write it. docs/formats/hf_folder.md lists what is read.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "memory/budget.h"
#include "tensor/meta_map.h"
#include "tensor/tensor_dir.h"

namespace carat {

/// The keys of `meta`:
///   config.…            config.json, nested keys joined by dots, as add_json() makes them
///   generation.…        generation_config.json
///   tokenizer_config.…  of tokenizer_config.json: bos_token, eos_token, unk_token, pad_token (strings, also where the
///                       file has an object with "content"), add_bos_token, add_eos_token, tokenizer_class,
///                       chat_template (of several named ones the one called "default")
///   chat_template       the template that counts: chat_template.jinja, else chat_template.json, else
///                       tokenizer_config.json
struct HfFolder {
  MetaMap meta;
  TensorDir tensors;  ///< names as stored; `files` are the weight files, with the folder before their names
  std::vector<Reservation> directory_memory;  ///< for meta's and tensors' own entries, once these pass 64 KiB
};

/// Reads the folder at `path`: its JSON files and the directory of its weights, no tensor data, and not the tokenizer.
/// Weights are the first of model.safetensors, model.safetensors.index.json, pytorch_model.bin,
/// pytorch_model.bin.index.json that is there. config.json and weights must be there; the other files need not.
/// Errors: one line with the file's path, and the byte, key or tensor.
Result<HfFolder> read_hf_folder(const std::string& path, Budget& budget);

}  // namespace carat
