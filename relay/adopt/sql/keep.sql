exception when data_exception then
    raise warning using errcode = sqlstate, message = {kept};
    return null;
