# Several sources of a target are compiled as one: most of the time of a file goes into instantiating
# and generating what it shares with its neighbours (gRPC, JSON, GoogleTest), so that four files of one
# folder take as long as one and a half, and twenty as long as thirteen in units of five. Sources with
# options of their own stay alone, and a build for fuzzing or with TRAINYARD_UNITY=OFF (preset `plain`) has
# no units: the latter finds missing includes.
#
#   ty_units(TARGET [FILES])    so many files a unit, 12 unless told, in the order of the target's list
option(TRAINYARD_UNITY "Compile several sources of a library as one" ON)
if(TRAINYARD_SANITIZE STREQUAL fuzz)
  set(TRAINYARD_UNITY OFF)
endif()

function(ty_units target)
  set(files 12)
  if(ARGC GREATER 1)
    set(files ${ARGV1})
  endif()
  if(NOT TRAINYARD_UNITY OR files EQUAL 1)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${files})
  # A unit includes its sources, so that GCC takes them for headers: what is private to one (a type in an
  # anonymous namespace) may well be a member of its classes.
  target_compile_options(${target} PRIVATE -Wno-subobject-linkage)
endfunction()
