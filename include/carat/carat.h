/* carat: language models inside a memory budget that you choose. The C API of libcarat.
 *
 *     carat_options options;
 *     carat_options_init(&options);
 *     options.memory = "600M";
 *     carat_model *model = NULL;
 *     if (carat_model_open("gemma3-270m", &options, &model) != CARAT_OK) puts(carat_last_error());
 *
 * Texts are UTF-8; sizes are bytes unless a name says tokens. Functions return CARAT_OK, or a status whose line of text
 * carat_last_error() has. Pointers that are passed in are read during the call only; outputs are written only on
 * CARAT_OK unless said otherwise. Nothing is printed, no signal handler is set, no exception leaves a function.
 *
 * Threads. A carat_model may be used by several threads at once: calls of carat_generate() run together, up to
 * carat_options.parallel of them, others wait; each one's callback runs on the thread that called. carat_model_close()
 * must come after all other calls on that model have returned. carat_last_error() is of the calling thread.
 *
 * Binary compatibility. A struct begins with its size, which its …_init() sets: later versions add members at the end,
 * and a library reads and writes no more of a struct than the program knows.
 */
#ifndef CARAT_CARAT_H
#define CARAT_CARAT_H

#include <stddef.h>
#include <stdint.h>

#define CARAT_VERSION_MAJOR 0
#define CARAT_VERSION_MINOR 1
#define CARAT_VERSION_PATCH 0

#if defined(__GNUC__)
#define CARAT_API __attribute__((visibility("default")))
#else
#define CARAT_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef enum carat_status {
  CARAT_OK = 0,
  CARAT_INTERNAL = 1,    /* a bug in carat */
  CARAT_INVALID = 2,     /* a bad argument or a bad file */
  CARAT_NO_FIT = 3,      /* does not fit the memory budget; the text says what would */
  CARAT_IO = 4,          /* the system refused a read or a write */
  CARAT_UNSUPPORTED = 5, /* a valid file or option that this build cannot serve */
  CARAT_STOPPED = 6,     /* the progress callback ended the loading */
  CARAT_TOO_SMALL = 7    /* an output buffer has no room; the count says how much is needed */
} carat_status;

/* "0.1.0": of the library that runs, which may be newer than this header. */
CARAT_API const char *carat_version(void);

/* What went wrong in the calling thread's last call that did not return CARAT_OK: one line. Valid until that thread's
 * next call; "" before the first failure. */
CARAT_API const char *carat_last_error(void);

typedef enum carat_log_level { CARAT_LOG_NOTE = 0, CARAT_LOG_DETAIL = 1 } carat_log_level;

/* Where notes go (a lowered budget, a repaired file): one line each, without its end, from any thread, also from several
 * at once. NULL, the default, drops them. Process-wide; set it before models are opened. */
CARAT_API void carat_set_log(void (*log)(carat_log_level level, const char *line, void *user), void *user);

/* --- Models ------------------------------------------------------------------------------------------------------ */

typedef struct carat_model carat_model;

typedef struct carat_options {
  size_t struct_size;
  const char *memory;     /* most that this process may use: "600M", "2GiB", "50%"; NULL: 80% of what is available */
  uint32_t context;       /* tokens; 0: the largest of min(trained, 8192) that fits */
  uint32_t parallel;      /* answers made at once; 1 */
  uint32_t chunk;         /* prompt tokens of one pass; 512 */
  uint32_t draft_tokens;  /* most tokens drafted from the text so far and verified in one step; 7; 0: none */
  const char *kv_local;   /* "f32", "bf16", "q8", "q4", "q3", "q2"; NULL: bf16 */
  const char *kv_global;  /* the same, or "auto" */
  uint64_t prefix_bytes;  /* for what prompts have in common with earlier ones, so that it is read once; 0: none */
  uint32_t threads;       /* 0: one a usable core */
  const char *kernels;    /* "ref", "avx2", "avx512", "amx", "neon", "i8mm"; NULL: $CARAT_ISA, else the best there is */
  /* Called while weights are read, on the thread that opens; anything but 0 ends it with CARAT_STOPPED. NULL: none. */
  int (*progress)(uint64_t done_bytes, uint64_t total_bytes, void *user);
  void *progress_user;
} carat_options;

#define carat_options_init(options) carat_options_init_sized((options), sizeof(carat_options))
CARAT_API void carat_options_init_sized(carat_options *options, size_t struct_size);

/* What memory is for; later versions may add to it. */
typedef enum carat_memory_category {
  CARAT_MEMORY_WEIGHTS = 0,
  CARAT_MEMORY_KV_LOCAL = 1,  /* keys and values of sliding-window layers: do not grow beyond the window */
  CARAT_MEMORY_KV_GLOBAL = 2, /* of layers that see everything: grow with the context */
  CARAT_MEMORY_ACTIVATIONS = 3,
  CARAT_MEMORY_LOGITS = 4,
  CARAT_MEMORY_TOKENIZER = 5,
  CARAT_MEMORY_PREFIX = 6, /* kept for reuse between requests */
  CARAT_MEMORY_IO = 7,     /* staging, texts and tokens */
  CARAT_MEMORY_FIXED = 8   /* what the process had before, stacks, small blocks */
} carat_memory_category;
#define CARAT_MEMORY_CATEGORIES 16 /* room in the arrays below; unused ones are 0 */

/* "kv.local"; NULL for a number that is no category. */
CARAT_API const char *carat_memory_category_name(int category);

typedef struct carat_plan {
  size_t struct_size;
  int fits;
  uint64_t budget;
  uint64_t total;
  uint64_t categories[CARAT_MEMORY_CATEGORIES];
  uint32_t context;      /* of the plan, tokens */
  uint32_t parallel;     /* of the plan */
  uint32_t max_context;  /* that would fit with the rest as it is; 0: none */
  uint32_t max_parallel; /* the same */
  int runs_out_first;    /* carat_memory_category: as the context grows */
  uint64_t kv_local_bytes_per_token;  /* until the window is full */
  uint64_t kv_global_bytes_per_token;
  double prefill_tokens_per_s; /* expected; estimated from the kind of CPU */
  double decode_tokens_per_s;
  uint64_t streamed_bytes_per_token; /* of weights that do not fit and are read from a file; 0: all stay in memory */
} carat_plan;

#define carat_plan_init(plan) carat_plan_init_sized((plan), sizeof(carat_plan))
CARAT_API void carat_plan_init_sized(carat_plan *plan, size_t struct_size);

/* Plans from the header of `model`, without loading: milliseconds. `options` may be NULL. Also for CARAT_NO_FIT the
 * plan is written; the text then names settings that would fit. */
CARAT_API carat_status carat_plan_model(const char *model, const carat_options *options, carat_plan *plan);

/* Plans, refuses with CARAT_NO_FIT what does not fit, and loads. `model`: a .gguf file, a Hugging Face folder, or a name
 * in $CARAT_MODELS (~/.cache/carat/models). `options` may be NULL. The budget is of the whole process, with what it uses
 * already; each open model has its own, so that of several each one's must leave room for the others. */
CARAT_API carat_status carat_model_open(const char *model, const carat_options *options, carat_model **out);

/* NULL does nothing. */
CARAT_API void carat_model_close(carat_model *model);

/* The plan it was loaded by. */
CARAT_API carat_status carat_model_plan(const carat_model *model, carat_plan *plan);

/* Tokens of context, and in the vocabulary. */
CARAT_API uint32_t carat_model_context(const carat_model *model);
CARAT_API uint32_t carat_model_vocabulary(const carat_model *model);
/* 1 when the model can answer messages; base models cannot, they continue a text. */
CARAT_API int carat_model_has_chat_template(const carat_model *model);

typedef struct carat_memory_report {
  size_t struct_size;
  uint64_t budget;
  uint64_t resident;      /* VmRSS of the process */
  uint64_t peak_resident; /* VmHWM */
  uint64_t swapped;       /* VmSwap */
  uint64_t planned[CARAT_MEMORY_CATEGORIES];
  uint64_t reserved[CARAT_MEMORY_CATEGORIES];
  uint64_t peak_reserved[CARAT_MEMORY_CATEGORIES];
} carat_memory_report;

#define carat_memory_report_init(report) carat_memory_report_init_sized((report), sizeof(carat_memory_report))
CARAT_API void carat_memory_report_init_sized(carat_memory_report *report, size_t struct_size);
CARAT_API carat_status carat_model_memory(const carat_model *model, carat_memory_report *report);

/* --- Tokens ------------------------------------------------------------------------------------------------------ */

/* A length: the text ends at its first zero byte. */
#define CARAT_ZERO_TERMINATED ((size_t)-1)

enum {
  CARAT_ADD_BOS = 1, /* carat_tokenize: put the BOS token first if the model wants one */
  CARAT_SPECIAL = 2  /* carat_tokenize: recognise control pieces in the text; carat_detokenize: show them by name */
};

/* The tokens of a text: `*count` of them, into `tokens` when `capacity` is enough, else CARAT_TOO_SMALL. `tokens` may be
 * NULL with a capacity of 0. */
CARAT_API carat_status carat_tokenize(const carat_model *model, const char *text, size_t text_bytes, unsigned flags,
                                      int32_t *tokens, size_t capacity, size_t *count);

/* The text of tokens: `*bytes` of it, and a zero byte behind them that `capacity` must have room for, too. What is not
 * UTF-8 (a character cut by the last token) becomes U+FFFD. */
CARAT_API carat_status carat_detokenize(const carat_model *model, const int32_t *tokens, size_t count, unsigned flags,
                                        char *text, size_t capacity, size_t *bytes);

typedef struct carat_message {
  const char *role; /* "system", "user", "assistant": as the model's template knows them */
  const char *content;
} carat_message;

/* The tokens of messages rendered by the model's chat template, ready for an answer; as carat_tokenize(). What stands in
 * a message never acts as a turn marker. */
CARAT_API carat_status carat_tokenize_chat(carat_model *model, const carat_message *messages, size_t message_count,
                                           int32_t *tokens, size_t capacity, size_t *count);

/* --- Answers ----------------------------------------------------------------------------------------------------- */

/* Something that another thread, or a signal handler, ends an answer with. */
typedef struct carat_cancellation carat_cancellation;
CARAT_API carat_cancellation *carat_cancellation_new(void); /* NULL: no memory */
CARAT_API void carat_cancel(carat_cancellation *cancellation);
/* Back to not cancelled, for the next answer. */
CARAT_API void carat_cancellation_reset(carat_cancellation *cancellation);
CARAT_API void carat_cancellation_free(carat_cancellation *cancellation);

typedef struct carat_token_logprob {
  int32_t token;
  float logprob; /* natural logarithm, of the distribution before temperature and filters */
} carat_token_logprob;

typedef struct carat_chunk {
  size_t struct_size; /* of the library: members beyond it do not exist */
  const char *text;   /* whole characters, a zero byte behind them; "" while a character or a stop string may go on */
  size_t text_bytes;
  int32_t token; /* -1: no token, only text that was held back until the end */
  float logprob; /* with carat_request.logprobs, else 0 */
  const carat_token_logprob *top; /* most likely first; carat_request.top_logprobs of them, else NULL */
  size_t top_count;
} carat_chunk;

typedef struct carat_request {
  size_t struct_size;
  /* Exactly one of the three. A prompt is raw text, with the BOS put first if the model wants one; messages are rendered
   * by the chat template; tokens are taken as they are. */
  const char *prompt;
  size_t prompt_bytes; /* CARAT_ZERO_TERMINATED */
  const carat_message *messages;
  size_t message_count;
  const int32_t *tokens;
  size_t token_count;

  uint32_t max_tokens; /* of the answer; UINT32_MAX: to the model's end or the context's */
  float temperature;   /* 1; 0 takes the most likely token */
  uint32_t top_k;      /* 64: sample among the K most likely; 0: all */
  float top_p;         /* 0.95: sample among the most likely that make up P */
  float min_p;         /* 0: drop what is less likely than this share of the most likely */
  float repetition_penalty; /* of tokens seen before; 1: none */
  float presence_penalty;
  float frequency_penalty;
  uint64_t seed;           /* the same seed gives the same answer; 0 */
  const char *const *stop; /* the answer ends before the first of these; no part of one is shown */
  size_t stop_count;
  int logprobs;          /* not 0: report log probabilities */
  uint32_t top_logprobs; /* of the likeliest tokens, too, up to 64; needs logprobs */

  /* The answer as it is made; anything but 0 ends it. May call carat_cancel() and functions on other models, but not
   * carat_generate() on this one. NULL: none. */
  int (*on_chunk)(const carat_chunk *chunk, void *user);
  void *user;
  carat_cancellation *cancellation; /* may be NULL; may be shared by several requests */
} carat_request;

/* The defaults, which are those of `carat run`: its preset "balanced". */
#define carat_request_init(request) carat_request_init_sized((request), sizeof(carat_request))
CARAT_API void carat_request_init_sized(carat_request *request, size_t struct_size);

typedef enum carat_finish_reason {
  CARAT_FINISH_STOP = 0,     /* the model's end of turn, or a stop string */
  CARAT_FINISH_LENGTH = 1,   /* max_tokens, or the context is full */
  CARAT_FINISH_CANCELLED = 2 /* by the callback or a carat_cancellation */
} carat_finish_reason;

typedef struct carat_result {
  size_t struct_size;
  carat_finish_reason finish_reason;
  uint32_t prompt_tokens;
  uint32_t cached_tokens; /* of the prompt, known from earlier requests; see carat_options.prefix_bytes */
  uint32_t completion_tokens;
  double first_token_s; /* from the call to the first token */
  double total_s;       /* from the call to the end */
} carat_result;

#define carat_result_init(result) carat_result_init_sized((result), sizeof(carat_result))
CARAT_API void carat_result_init_sized(carat_result *result, size_t struct_size);

/* Makes one answer and returns when it has ended; a cancelled one is CARAT_OK. `result` may be NULL. A prompt longer
 * than the context is CARAT_INVALID, with both counts. The answer does not depend on what else runs. */
CARAT_API carat_status carat_generate(carat_model *model, const carat_request *request, carat_result *result);

#ifdef __cplusplus
}
#endif

#endif
