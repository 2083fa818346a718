#pragma once

#include "tests/fakes/grpc/values.h"
