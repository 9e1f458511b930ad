/* Continues a text inside a memory budget:  generate MODEL MEMORY PROMPT [TOKENS] */
#include <carat/carat.h>
#include <stdio.h>
#include <stdlib.h>

static int print_chunk(const carat_chunk *chunk, void *user) {
  (void)user;
  fwrite(chunk->text, 1, chunk->text_bytes, stdout);
  return fflush(stdout) == 0 ? 0 : 1; /* a closed output ends the answer */
}

static int fail(void) {
  fprintf(stderr, "generate: %s\n", carat_last_error());
  return 1;
}

int main(int argc, char **argv) {
  if (argc < 4) {
    fprintf(stderr, "usage: generate MODEL MEMORY PROMPT [TOKENS]\n");
    return 2;
  }
  carat_options options;
  carat_options_init(&options);
  options.memory = argv[2];

  /* What it will take is known before anything is loaded. */
  carat_plan plan;
  carat_plan_init(&plan);
  if (carat_plan_model(argv[1], &options, &plan) != CARAT_OK) return fail();
  fprintf(stderr, "%.1f of %.1f MB planned, context of %u tokens\n", (double)plan.total / 1e6,
          (double)plan.budget / 1e6, plan.context);

  carat_model *model = NULL;
  if (carat_model_open(argv[1], &options, &model) != CARAT_OK) return fail();

  carat_request request;
  carat_request_init(&request);
  request.prompt = argv[3];
  request.max_tokens = argc > 4 ? (uint32_t)strtoul(argv[4], NULL, 10) : 48;
  request.temperature = 0;
  request.on_chunk = print_chunk;
  carat_result result;
  carat_result_init(&result);
  if (carat_generate(model, &request, &result) != CARAT_OK) {
    carat_model_close(model);
    return fail();
  }
  printf("\n");

  carat_memory_report memory;
  carat_memory_report_init(&memory);
  if (carat_model_memory(model, &memory) == CARAT_OK) {
    fprintf(stderr, "%u tokens in %.2f s; VmHWM %.1f MB of %.1f MB\n", result.completion_tokens, result.total_s,
            (double)memory.peak_resident / 1e6, (double)memory.budget / 1e6);
  }
  carat_model_close(model);
  return 0;
}
