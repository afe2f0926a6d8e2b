/* A controller that goes on learning after it has left the workshop.

   It predicts the result of each action, takes the action with the result nearest to the
   goal, and learns from what really happens.  Halfway the plant wears out: its actuator gets weaker
   and drifts.  A second controller keeps the model of the workshop; both errors are printed. */
#include <math.h>
#include <stdio.h>

#include "plant.h"

#define STEPS 20000
#define ACTIONS 41

static plant_state learning, fixed;

/* The plant, in place of sensor and actuator. */
static float act(float value, float action, int worn)
{
  const float gain = worn ? 0.35f : 0.6f, drift = worn ? 0.08f : 0.0f;
  return 0.8f * value + gain * action + drift + 0.05f * sinf(3 * value);
}

/* Returns the action with the predicted result nearest to the goal. */
static float choose(const plant_state *model, float value, float goal)
{
  float best = 0, smallest = INFINITY;
  for (int i = 0; i < ACTIONS; i++) {
    float x[PLANT_INPUTS], result[PLANT_OUTPUTS];
    x[PLANT_X_VALUE] = value;
    x[PLANT_X_ACTION] = (float)i * 2 / (ACTIONS - 1) - 1;
    if (!plant_predict(model, x, result)) continue;
    const float error = fabsf(result[PLANT_OUT_NEXT] - goal);
    if (error < smallest) {
      smallest = error;
      best = x[PLANT_X_ACTION];
    }
  }
  return best;
}

/* Makes one step with a model, and returns the control error. */
static float control(plant_state *model, float *value, float goal, int worn, int learns)
{
  float x[PLANT_INPUTS];
  x[PLANT_X_VALUE] = *value;
  x[PLANT_X_ACTION] = choose(model, *value, goal);
  const float after = act(*value, x[PLANT_X_ACTION], worn);
  if (learns) plant_train(model, x, &after);
  *value = after;
  return fabsf(after - goal);
}

int main(void)
{
  float values[2] = {0, 0}, errors[2] = {0, 0};
  plant_init(&learning);
  plant_init(&fixed);
  learning.lr = 0.02f;
  printf("%6s %10s %10s\n", "step", "learning", "fixed");
  for (int step = 1; step <= STEPS; step++) {
    const float goal = 0.8f * sinf((float)step / 50);
    const int worn = step > STEPS / 2;
    errors[0] += control(&learning, &values[0], goal, worn, 1);
    errors[1] += control(&fixed, &values[1], goal, worn, 0);
    if (step % (STEPS / 10) == 0) {
      errors[0] /= STEPS / 10;
      errors[1] /= STEPS / 10;
      printf("%6d %10.4f %10.4f\n", step, (double)errors[0], (double)errors[1]);
      if (step < STEPS) errors[0] = errors[1] = 0;
    }
  }
  const uint32_t sum = plant_check_sum(&learning); /* goes to flash with the state */
  fixed = learning; /* as the state that is read when the power is back */
  if (plant_check_sum(&fixed) != sum) return 1;
  printf("%lu steps learned, %lu skipped\n", (unsigned long)learning.steps,
         (unsigned long)learning.skipped);
  return errors[0] < errors[1] / 2 ? 0 : 1;
}
