-- Earlier tables have a column that nothing reads, and whose default nothing sets any more.
ALTER TABLE usage DROP COLUMN IF EXISTS write_key;
