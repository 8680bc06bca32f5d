-- The owner creates the tables, with `thinklsp store migrate --role thinklsp_server`. The server must not own them, so that
-- the database itself keeps the sessions of users apart.
create role thinklsp_owner login;
create role thinklsp_server login nosuperuser nobypassrls;
create database thinklsp owner thinklsp_owner;
