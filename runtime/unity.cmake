# ejk_unity(target): with EJK_UNITY the target's sources of one folder are compiled as one, so that what they all include is read once.
# By folder, not by number: a new file changes its own folder's unit alone, and names at the top of a file need to differ within a folder.
option(EJK_UNITY "Compile the sources of a folder as one: a whole build is far cheaper, one edit compiles its folder" ON)
set(EJK_APART "" CACHE STRING "A regular expression over sources, such as '^reference/kernels/mean': they are compiled alone, while one works on them")

function(ejk_unity target)
  if(NOT EJK_UNITY)
    return()
  endif()
  get_target_property(sources ${target} SOURCES)
  foreach(source ${sources})
    cmake_path(RELATIVE_PATH source BASE_DIRECTORY ${CMAKE_SOURCE_DIR} OUTPUT_VARIABLE place)
    if(EJK_APART AND place MATCHES "${EJK_APART}")
      continue()  # in no group: alone
    endif()
    cmake_path(GET place PARENT_PATH folder)
    string(REPLACE "/" "_" group ${folder})
    set_property(SOURCE ${source} PROPERTY UNITY_GROUP ${group})
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
endfunction()

# Headers that nearly every source includes, read once for all targets. tools/quickstart builds with it; otherwise it is off, since ccache would
# find nothing again.
option(EJK_PRECOMPILED "Precompile the headers that nearly every source includes: a build from nothing is faster" OFF)

# As ejk_spec compiles, whose precompiled header it is.
function(ejk_precompiled target)
  if(EJK_PRECOMPILED AND target STREQUAL "ejk_spec")
    target_precompile_headers(${target} PRIVATE ${CMAKE_SOURCE_DIR}/runtime/precompiled.hpp)
  elseif(EJK_PRECOMPILED)
    target_precompile_headers(${target} REUSE_FROM ejk_spec)
  endif()
endfunction()
