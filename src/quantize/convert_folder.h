// A Hugging Face folder that appears only when complete, and the small files in it.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "memory/budget.h"
#include "model/model_file.h"
#include "quantize/convert.h"
#include "tensor/meta_map.h"

namespace carat {

/// Written as PATH.partial-PID beside its target and renamed over it by commit().
class PartialFolder {
 public:
  /// The parent of `target` must be there.
  static Result<PartialFolder> create(const std::string& target);
  PartialFolder(PartialFolder&& other) noexcept;
  PartialFolder& operator=(PartialFolder&&) = delete;
  ~PartialFolder();  ///< removes what was not committed

  std::string path(std::string_view name) const { return temporary_ + "/" + std::string(name); }
  /// Puts the folder in place; what was there is moved aside first, and removed last.
  Status commit();

 private:
  PartialFolder() = default;
  std::string target_;
  std::string temporary_;
};

/// Whether --force may replace the folder at `path`: an empty one, or one that holds a model and no other folders.
bool is_model_folder(const std::string& path);

/// Writes config.json, generation_config.json, tokenizer.json, tokenizer_config.json, chat_template.jinja and README.md
/// as far as `source` has what goes into them. `config`: the source's, as a folder is to say it. A folder's own
/// tokenizer files are copied. What cannot be written is said in `changes`.
Status write_folder_files(const ModelFile& source, const ModelConfig& config, const MetaMap& general, DType type,
                          const PartialFolder& folder, Budget& budget, std::vector<std::string>& changes);

/// The text of carat_convert.json: hashes of the files, and the general.… keys that no other file of a folder has.
std::string notes_text(const ConvertReport& report, const MetaMap& general);

}  // namespace carat
