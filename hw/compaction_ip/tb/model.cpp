// One size of the engine: compiled once per number of inputs, with INPUTS and MODEL_HEADER given.
#include MODEL_HEADER
#include "machine.h"

#define JOIN2(a, b) a##b
#define JOIN(a, b) JOIN2(a, b)

std::unique_ptr<Simulator> JOIN(make_compaction_ip_, INPUTS)() {
    return std::make_unique<Machine<JOIN(Vcompaction_ip_, INPUTS)>>();
}
