/* Trains a network on handwritten digits: model.h has the functions, which digits.py builds. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "model.h"

enum { IMAGES = 1797, PIXELS = 64, HIDDEN = 64 * 48, OUTPUT = 48 * 10, BATCH = 64, TESTED = 360, EPOCHS = 30 };
enum { TRAINED = IMAGES - TESTED };

static float images[IMAGES * PIXELS];
static int32_t labels[IMAGES], digits[TESTED];

static int read_file(const char *name, void *memory, size_t bytes) {
  FILE *file = fopen(name, "rb");
  size_t count = file == NULL ? 0 : fread(memory, 1, bytes, file);
  if (file != NULL) fclose(file);
  return count == bytes;
}

int main(void) {
  static float hidden[2][HIDDEN], output[2][OUTPUT], loss;
  static char scratch[INIT_SCRATCH_BYTES + STEP_SCRATCH_BYTES + PREDICT_SCRATCH_BYTES];
  if (!read_file("images.bin", images, sizeof images) || !read_file("labels.bin", labels, sizeof labels)) return 1;

  hloom_pool *pool = hloom_pool_new(2);
  uint32_t seed = 0;
  int now = 0; /* the weights of this step; those of the next are in the other arrays */
  if (init(&seed, hidden[now], output[now], scratch, pool)) return 2;
  clock_t began = clock();
  for (int epoch = 0; epoch < EPOCHS; epoch++) {
    for (int first = 0; first + BATCH <= TRAINED; first += BATCH, now = !now) {
      if (step(hidden[now], output[now], images + first * PIXELS, labels + first, hidden[!now], output[!now], &loss,
               scratch, pool)) return 2;
    }
  }
  double seconds = (double)(clock() - began) / CLOCKS_PER_SEC;
  if (predict(hidden[now], output[now], images + TRAINED * PIXELS, digits, scratch, pool)) return 2;
  hloom_pool_free(pool);

  int right = 0;
  for (int k = 0; k < TESTED; k++) right += digits[k] == labels[TRAINED + k];
  printf("loss %a, %d of %d digits are recognised\n", loss, right, TESTED);
  fprintf(stderr, "%.1f us a step\n", 1e6 * seconds / (EPOCHS * (TRAINED / BATCH)));
  return 0;
}
